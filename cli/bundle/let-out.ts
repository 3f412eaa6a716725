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
  return kept(value, allowed, false)
}

/** The same for what a program reads again: a field that no list names is absent, as to a reader that does not know it. */
export function letOutForReaders(value: unknown, allowed: Allowed | undefined): unknown {
  return kept(value, allowed, true)
}

function kept(value: unknown, allowed: Allowed | undefined, omits: boolean): unknown {
  if (value === null || value === undefined) return value
  if (allowed === undefined) return LEFT_OUT
  if (Array.isArray(value)) return value.map((one) => kept(one, allowed, omits))
  if (typeof value !== 'object') return allowed === 'plain' || allowed === 'map' ? value : LEFT_OUT
  if (allowed === 'plain') return LEFT_OUT
  const fields = value as Fields
  const named = typeof allowed === 'function' ? allowed(fields) : allowed
  const ofKey = (key: string): Allowed | undefined => (named === 'map' ? 'plain' : ownOf(named, key))
  return Object.fromEntries(
    Object.entries(fields).flatMap(([key, one]) => {
      const own = ofKey(key)
      return omits && own === undefined ? [] : [[key, kept(one, own, omits)]]
    }),
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
