/** Lets out of a value what a list names, and says of the rest that there is more. Pure. */
import type { FieldSchema } from '../../explain/facts/fact-schemas.ts'

/** Stands where something was that no list names. */
export const LEFT_OUT = '<left out>'

/**
 * What may go out of a value; in a list, of each item. `plain`: a text, a number or a flag. `map`: plain values under
 * whatever names. Fields: those that are named, each as it says. A function decides by the other fields beside.
 */
export type Allowed = 'plain' | 'map' | AllowedFields | ((fields: Fields) => AllowedFields)
export interface AllowedFields {
  readonly [field: string]: Allowed
}

export type Fields = Readonly<Record<string, unknown>>

/** What has another form than the list says is left out too. */
export function letOut(value: unknown, allowed: Allowed | undefined): unknown {
  if (value === null || value === undefined) return value
  if (allowed === undefined) return LEFT_OUT
  if (Array.isArray(value)) return value.map((one) => letOut(one, allowed))
  if (typeof value !== 'object') return allowed === 'plain' || allowed === 'map' ? value : LEFT_OUT
  if (allowed === 'plain') return LEFT_OUT
  const fields = value as Fields
  const named = typeof allowed === 'function' ? allowed(fields) : allowed
  return Object.fromEntries(
    Object.entries(fields).map(([key, one]) => [key, letOut(one, named === 'map' ? 'plain' : ownOf(named, key))]),
  )
}

/** `fields('name port', { more: 'map' })`: plain ones by their names. */
export function fields(names: string, others: AllowedFields = {}): AllowedFields {
  return { ...plain(names.split(' ')), ...others }
}

export function plain(names: readonly string[]): AllowedFields {
  return Object.fromEntries(names.map((name) => [name, 'plain']))
}

/** All fields that a schema names. */
export function allowedBy({ properties, items, additionalProperties, anyOf }: FieldSchema): Allowed {
  if (items !== undefined) return allowedBy(items)
  if (properties !== undefined) {
    return Object.fromEntries(Object.entries(properties).map(([name, schema]) => [name, allowedBy(schema)]))
  }
  const choices = (anyOf ?? []).map(allowedBy).filter((choice) => choice !== 'plain')
  return choices[0] ?? (additionalProperties === undefined || additionalProperties === false ? 'plain' : 'map')
}

function ownOf(allowed: AllowedFields, key: string): Allowed | undefined {
  return Object.hasOwn(allowed, key) ? allowed[key] : undefined
}
