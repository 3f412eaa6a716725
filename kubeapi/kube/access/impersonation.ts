/** Acting as somebody else, as a kubeconfig asks for it (`as`, `as-uid`, `as-groups`, `as-user-extra`). Pure. */
import { UserError } from '../../../runtime/user-error.ts'
import type { RequestHeaders } from './server-access.ts'

export interface Impersonation {
  readonly user: string
  readonly uid: string | undefined
  readonly groups: readonly string[]
  readonly extra: Readonly<Record<string, readonly string[]>>
}

/** Undefined when nobody is meant. Throws UserError naming the field; `where` names the user of the kubeconfig. */
export function readImpersonation(user: Readonly<Record<string, unknown>>, where: string): Impersonation | undefined {
  const name = optionalHeader(user['as'], `${where}: as`)
  const uid = optionalHeader(user['as-uid'], `${where}: as-uid`)
  const groups = texts(user['as-groups'] ?? [], `${where}: as-groups`)
  const extra = lists(user['as-user-extra'] ?? {}, `${where}: as-user-extra`)
  if (name !== undefined) return { user: name, uid, groups, extra }
  const given = ['as-uid', 'as-groups', 'as-user-extra'].find((field) => user[field] !== undefined)
  if (uid === undefined && groups.length === 0 && Object.keys(extra).length === 0) return undefined
  throw new UserError(`${where}: ${given ?? ''} without as: an API server takes them only with a user`)
}

/** One header for each group and each value, as the API server reads them. */
export function impersonationHeaders(wanted: Impersonation | undefined): RequestHeaders {
  if (wanted === undefined) return {}
  const { user, uid, groups, extra } = wanted
  return {
    'impersonate-user': user,
    ...(uid === undefined ? {} : { 'impersonate-uid': uid }),
    ...(groups.length === 0 ? {} : { 'impersonate-group': [...groups] }),
    ...Object.fromEntries(
      Object.entries(extra).map(([key, values]) => [`impersonate-extra-${headerName(key)}`, [...values]]),
    ),
  }
}

/**
 * Keys are mostly paths; a header's name has fewer characters (RFC 9110 section 5.6.2), the rest is escaped by bytes.
 */
function headerName(key: string): string {
  return [...Buffer.from(key, 'utf8')]
    .map((byte) => {
      const letter = String.fromCharCode(byte)
      return /[!#$&'*+.^_`|~0-9a-z-]/i.test(letter) ? letter : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`
    })
    .join('')
}

function optionalHeader(value: unknown, field: string): string | undefined {
  if (value === undefined || value === null || value === '') return undefined
  if (typeof value === 'string') return headerValue(value, field)
  throw new UserError(`${field}: expected a text`)
}

/** It is sent as it is, and a header has no way to write other letters. */
function headerValue(text: string, field: string): string {
  if (/^[\t\x20-\x7e]*$/.test(text)) return text
  throw new UserError(`${field}: ${JSON.stringify(text)}: expected printable ASCII: it is sent as a header`)
}

function texts(value: unknown, field: string): readonly string[] {
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) {
    return value.map((one) => headerValue(one, field))
  }
  throw new UserError(`${field}: expected a list of texts`)
}

function lists(value: unknown, field: string): Readonly<Record<string, readonly string[]>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new UserError(`${field}: expected a list of texts for each key`)
  }
  return Object.fromEntries(Object.entries(value).map(([key, list]) => [key, texts(list, `${field}: ${key}`)]))
}
