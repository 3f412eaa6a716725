/**
 * The form of a description for readers: an object that an earlier or a later release wrote stays usable, and one that a
 * disk error or an edit has damaged does not. Unknown fields stay. Required fields stay required, since every release
 * has written them. Rules of CEL, grammar and limits are dropped, except of what is relied() on. What is left:
 *
 * - a text has at most MAX_TEXT characters; one that names something is not empty, and at most as long as the CRD says
 *   or MAX_NAME
 * - a number is not negative if none may be
 * - of a choice, any text is taken
 */
import { z } from 'zod'
import { type FieldNote, type Schema, noteOf } from './fields.ts'

/** The limit of a text in an object. */
export const MAX_TEXT = 32_768
/** The limit of a name. */
export const MAX_NAME = 300

/** `ours`: what Sealane alone writes. `anyone`: of a shared CRD, what other products may write. */
export type Writer = 'ours' | 'anyone'

/** Throws an Error for a type that has not been made by the functions of fields.ts. */
export function loose<T extends z.core.$ZodType>(type: T, writer?: Writer): Loose<T>
export function loose(type: z.core.$ZodType, writer: Writer = 'ours'): z.core.$ZodType {
  if (type instanceof z.ZodOptional) return loose(type.unwrap(), writer).optional()
  const note = noteOf(type)
  if (note === undefined) throw new Error('this field has no description: it was not made by fields.ts')
  if (note.shared !== undefined && writer === 'anyone') return loose(note.shared, writer)
  if (note.relied === true) return type
  if (type instanceof z.ZodArray) return z.array(loose(type.element, writer), { error: 'a list' })
  if (type instanceof z.ZodRecord) return z.record(z.string(), looseText(), { error: 'a map' })
  if (!(type instanceof z.ZodObject)) return looseValue(note)
  const shape = Object.entries(type.shape)
  const fields = Object.fromEntries(shape.map(([field, value]) => [field, loose(value, writer)]))
  return z.looseObject(fields, { error: 'a map' })
}

/** The fields keep their names; what they may hold is not known to the type. */
export type Loose<T> =
  T extends z.ZodObject<infer Shape> ? z.ZodObject<{ [Field in keyof Shape]: z.ZodType }, z.core.$loose> : z.ZodType

function looseValue({ schema, isName = false }: FieldNote): z.ZodType {
  if (schema.type === 'boolean') return z.boolean({ error: 'true or false' })
  if (schema.type === 'integer') return looseNumber(schema).int({ error: 'a whole number' })
  if (schema.type === 'number') return looseNumber(schema)
  return isName ? looseName(schema) : looseText()
}

function looseNumber({ minimum = 0 }: Schema): z.ZodNumber {
  const least = Math.min(0, minimum)
  const error = `a number, at least ${least}`
  return z.number({ error }).min(least, { error })
}

function looseText(): z.ZodString {
  const error = `text of at most ${MAX_TEXT} characters`
  return z.string({ error }).max(MAX_TEXT, { error })
}

function looseName({ maxLength = 0 }: Schema): z.ZodString {
  const longest = Math.max(MAX_NAME, maxLength)
  const error = `a name of 1 to ${longest} characters`
  return z.string({ error }).min(1, { error }).max(longest, { error })
}
