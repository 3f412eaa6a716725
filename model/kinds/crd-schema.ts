/** Makes the schema of a CRD from the description of a kind. Pure. */
import { z } from 'zod'
import { type Schema, noteOf } from './fields.ts'

/** What every object has beside its own fields. */
const OBJECT_FIELDS: Readonly<Record<string, Schema>> = {
  apiVersion: { description: 'API group and version of the object.', type: 'string' },
  kind: { description: 'Kind of the object.', type: 'string' },
  metadata: { type: 'object' },
}

/** Throws an Error for a type that has not been made by the functions of fields.ts. */
export function crdSchema(type: z.core.$ZodType): Schema {
  if (type instanceof z.ZodOptional) return crdSchema(type.unwrap())
  const note = noteOf(type)
  if (note === undefined) throw new Error('this field has no description: it was not made by fields.ts')
  if (note.shared !== undefined) return crdSchema(note.shared)
  const { description, type: name, ...limits } = note.schema
  const head = { ...(description === undefined ? {} : { description }), ...(name === undefined ? {} : { type: name }) }
  if (type instanceof z.ZodArray) return { ...head, items: crdSchema(type.element), ...limits }
  if (type instanceof z.ZodRecord) return { ...head, additionalProperties: crdSchema(type.valueType), ...limits }
  if (!(type instanceof z.ZodObject)) return note.schema
  const shape: Readonly<Record<string, z.core.$ZodType>> = type.shape
  const own = Object.fromEntries(Object.entries(shape).map(([field, value]) => [field, crdSchema(value)]))
  const required = Object.keys(shape).filter((field) => !isOptional(shape[field]))
  const properties = note.isObject === true ? { ...OBJECT_FIELDS, ...own } : own
  return {
    ...head,
    ...(Object.keys(properties).length > 0 ? { properties } : {}),
    ...(required.length > 0 ? { required } : {}),
    ...limits,
  }
}

function isOptional(type: z.core.$ZodType | undefined): boolean {
  if (type === undefined || type instanceof z.ZodOptional) return true
  const shared = noteOf(type)?.shared
  return shared !== undefined && isOptional(shared)
}
