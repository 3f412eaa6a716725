/**
 * Field checks for the schemas. The message of each is what was expected; schemaProblems() and complaintOf() add the
 * path of the field.
 */
import { z } from 'zod'
import { isDnsLabel, isDnsSubdomain } from '../model.ts'
import { type Family, parseAddress, parsePrefix } from '../addresses/addresses.ts'

/** A field with a value that passes `test`. */
export function field<T>(expected: string, test: (value: unknown) => boolean): z.ZodType<T> {
  return z.custom<T>(test, { error: expected })
}

export function oneOf<const T extends string>(...choices: readonly T[]): z.ZodType<T> {
  return field<T>(`one of ${choices.join(', ')}`, (value) => choices.some((choice) => choice === value))
}

export function integer(min: number, max: number): z.ZodType<number> {
  return field<number>(`${min} to ${max}`, (value) => isInteger(value) && value >= min && value <= max)
}

export function list<T extends z.ZodType>(item: T): z.ZodArray<T> {
  return z.array(item, { error: 'a list' })
}

/** A map of known fields; others are dropped. */
export function map<T extends z.ZodRawShape>(shape: T): z.ZodObject<T> {
  return z.object(shape, { error: 'a map' })
}

export const text = field<string>('text', isText)
export const flag = field<boolean>('true or false', (value) => typeof value === 'boolean')
export const dnsLabel = field<string>('an RFC 1123 label: 1 to 63 of a-z, 0-9 and -', (v) => isText(v) && isDnsLabel(v))
export const dnsSubdomain = field<string>('an RFC 1123 subdomain: labels of a-z, 0-9 and - joined by dots', isSubdomain)
export const port = integer(1, 65_535)
export const timestamp = field<string>(
  'an RFC 3339 time',
  (v) => isText(v) && RFC3339.test(v) && !Number.isNaN(Date.parse(v)),
)
export const ipAddress = field<string>('an IPv4 or IPv6 address such as 10.42.0.7', isAddress)
export const cidr = field<string>('a CIDR without host bits such as 10.42.0.0/16', isCidr)
export const textMap = z.record(z.string(), text, { error: 'a map' })

const RFC3339 = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})$/

export function isText(value: unknown): value is string {
  return typeof value === 'string'
}

export function isInteger(value: unknown): value is number {
  return Number.isSafeInteger(value)
}

export function isSubdomain(value: unknown): boolean {
  return isText(value) && isDnsSubdomain(value)
}

export function isAddress(value: unknown): boolean {
  return isText(value) && !throws(() => parseAddress(value))
}

export function isAddressOf(family: Family, value: unknown): boolean {
  return isText(value) && isAddress(value) && parseAddress(value).family === family
}

function isCidr(value: unknown): boolean {
  return isText(value) && !throws(() => parsePrefix(value))
}

export function throws(action: () => unknown): boolean {
  try {
    action()
    return false
  } catch {
    return true
  }
}

/** The path of a field in its object or document. */
export type FieldPath = readonly PropertyKey[]

/** Formats a path as `spec.ports[0].port`. */
export function pathText(path: FieldPath): string {
  const text = path.map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`)).join('')
  return text === '' ? 'document' : text.replace(/^\./, '')
}

/** Returns the first problem of a value, with the field and what was expected; undefined if there is none. */
export function complaintOf(schema: z.ZodType, value: object): string | undefined {
  const issue = schema.safeParse(value).error?.issues[0]
  return issue === undefined ? undefined : `${pathText(issue.path)}: expected ${issue.message}`
}
