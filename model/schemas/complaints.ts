/** What is said of a field that is wrong. */
import type { z } from 'zod'

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
