/**
 * The form of a description for readers: an object that an earlier or a later release wrote stays usable, and one that a
 * disk error or an edit has damaged does not. Unknown fields stay. Required fields stay required, since every release
 * has written them. Rules of CEL, grammar and limits are dropped, except of what is relied() on. What is left:
 *
 * - a text has at most MAX_TEXT characters; one that names something is not empty, and at most as long as the CRD says
 *   or MAX_READ_NAME
 * - a number is not negative if none may be
 * - of a choice, any text is taken
 */
import { z } from 'zod'
import { type FieldNote, type Schema, list, map, noteOf } from './fields.ts'

/** The limit of a text in an object. */
export const MAX_TEXT = 32_768
/** The limit of a name. It exceeds that of the API (MAX_NAME), for names of parts that are joined. */
export const MAX_READ_NAME = 300

/**
 * `ours`: what Sealane alone writes. `anyone`: of a shared CRD, what other products may write. `kubernetes`: what the
 * API server and its controllers write, of which null is absent.
 */
export type Writer = 'ours' | 'anyone' | 'kubernetes'

/** Throws an Error for a type that has not been made by the functions of fields.ts. */
export function loose<T extends z.core.$ZodType, W extends Writer = 'ours'>(type: T, writer?: W): Loose<T, W>
export function loose(type: z.core.$ZodType, writer: Writer = 'ours'): z.ZodType {
  if (type instanceof z.ZodOptional || type instanceof z.ZodDefault) {
    const found = loose<z.ZodType, Writer>(type.unwrap() as z.ZodType, writer)
    return writer === 'kubernetes' ? found.nullish() : found.optional()
  }
  const note = noteOf(type)
  if (note === undefined) throw new Error('this field has no description: it was not made by fields.ts')
  if (note.shared !== undefined && writer !== 'ours') return loose(note.shared, writer)
  if (note.relied === true) return type as z.ZodType
  if (type instanceof z.ZodUnion)
    return z.union(type.options.map((one) => loose<z.ZodType, Writer>(one as z.ZodType, writer)))
  if (type instanceof z.ZodArray) return z.array(loose(type.element, writer), { error: 'a list' })
  if (type instanceof z.ZodRecord)
    return z.record(z.string(), loose<z.ZodType, Writer>(type.valueType as z.ZodType, writer), { error: 'a map' })
  if (!(type instanceof z.ZodObject)) return looseValue(note)
  const shape = Object.entries(type.shape)
  const fields = Object.fromEntries(shape.map(([field, value]) => [field, loose(value, writer)]))
  return z.looseObject(fields, { error: 'a map' })
}

/** The form of each field; a value that is no list and no map keeps its type, though of a choice any text is taken. */
export type Loose<T, W extends Writer = 'ours'> =
  T extends z.ZodObject<infer Shape>
    ? z.ZodObject<{ [F in keyof Shape]: Loose<Shape[F], W> }, z.core.$loose>
    : T extends z.ZodOptional<infer Inner> | z.ZodDefault<infer Inner>
      ? z.ZodOptional<W extends 'kubernetes' ? z.ZodNullable<Loose<Inner, W>> : Loose<Inner, W>>
      : T extends z.ZodArray<infer Item>
        ? z.ZodArray<Loose<Item, W>>
        : z.ZodType<z.core.input<T>>

/** What is kept of a description: true for a whole field, and of maps, and lists of maps, the fields that are kept. */
type Kept<T> =
  | true
  | (T extends z.ZodOptional<infer Inner>
      ? Kept<Inner>
      : T extends z.ZodArray<infer Item>
        ? Kept<Item>
        : T extends z.ZodObject<infer Shape>
          ? { readonly [F in keyof Shape]?: Kept<Shape[F]> }
          : never)

type Part<T, K> = K extends true
  ? T
  : T extends z.ZodOptional<infer Inner>
    ? z.ZodOptional<AsType<Part<Inner, K>>>
    : T extends z.ZodArray<infer Item>
      ? z.ZodArray<AsType<Part<Item, K>>>
      : T extends z.ZodObject<infer Shape>
        ? z.ZodObject<{ [F in keyof K & keyof Shape]: AsType<Part<Shape[F], K[F]>> }>
        : T

type AsType<T> = T extends z.core.SomeType ? T : never

/**
 * A part of a description: the fields that are kept, in their order there. Rules about several fields are dropped. Throws
 * an Error for a field that is not described.
 */
export function partOf<T extends z.ZodType, const K extends Kept<T>>(type: T, kept: K): Part<T, K>
export function partOf(type: z.ZodType, kept: unknown): z.ZodType {
  if (kept === true) return type
  if (type instanceof z.ZodOptional) return partOf(type.unwrap() as z.ZodType, kept as true).optional()
  if (type instanceof z.ZodArray) return list(partOf(type.element as z.ZodType, kept as true))
  if (!(type instanceof z.ZodObject)) throw new Error('only maps, and lists of maps, have a part')
  const fields = type.shape as Readonly<Record<string, z.ZodType>>
  const parts = Object.entries(kept as Readonly<Record<string, true>>).map(([name, part]) => {
    const field = fields[name]
    if (field === undefined) throw new Error(`there is no field ${name} to keep`)
    return [name, partOf(field, part)] as const
  })
  return map(Object.fromEntries(parts))
}

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
  const longest = Math.max(MAX_READ_NAME, maxLength)
  const error = `a name of 1 to ${longest} characters`
  return z.string({ error }).min(1, { error }).max(longest, { error })
}
