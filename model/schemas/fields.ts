/** Field checks of documents that have no CRD, and what is said of a field that is wrong. */
import { z } from 'zod'
import { type Family, parseAddress } from '../addresses/addresses.ts'
import * as kinds from '../kinds/kinds.ts'
import { isDnsSubdomain } from '../model.ts'

/** A field with a value that passes `test`. */
export function field<T>(expected: string, test: (value: unknown) => boolean): z.ZodType<T> {
  return z.custom<T>(test, { error: expected })
}

export function oneOf<const T extends string>(...choices: readonly T[]): z.ZodType<T> {
  return kinds.choice(choices)
}

export const text = kinds.text()
export const flag = kinds.flag()
export const dnsLabel = kinds.dnsLabel()
export const dnsSubdomain = kinds.dnsSubdomain()
export const port = kinds.integer(1, 65_535)
export const timestamp = kinds.timestamp()
export const ipAddress = kinds.ipAddress()
export const cidr = kinds.cidr()
export const textMap = kinds.textMap()

export function isText(value: unknown): value is string {
  return typeof value === 'string'
}

export function isSubdomain(value: unknown): boolean {
  return isText(value) && isDnsSubdomain(value)
}

export function isAddress(value: unknown): boolean {
  return isText(value) && !kinds.throws(() => parseAddress(value))
}

export function isAddressOf(family: Family, value: unknown): boolean {
  return isText(value) && isAddress(value) && parseAddress(value).family === family
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
