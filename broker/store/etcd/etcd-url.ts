/** Parses `etcd://user@h1:2379,h2:2379/prefix`, the address of a store in options and messages. */
import { type HostPort, UserError, parseHostPort } from '../../../runtime/runtime.ts'

const DEFAULT_PORT = 2379
const DEFAULT_PREFIX = '/sealane'
const MAX_ENDPOINTS = 16
const MAX_PREFIX = 200
const EXPECTED = 'etcd://[user@]host:port[,host:port…][/prefix]'

export interface EtcdUrl {
  readonly endpoints: readonly HostPort[]
  readonly user?: string
  /** Begins with '/' and does not end with one. */
  readonly prefix: string
}

/** Throws UserError that names `field`, the text and what is expected, and never a password. */
export function parseEtcdUrl(text: string, field: string): EtcdUrl {
  const match = /^etcd:\/\/(?:([^@/]*)@)?([^@/]+)(\/.*)?$/.exec(text)
  const [, user, hosts = '', path = ''] = match ?? []
  if (user?.includes(':') === true)
    throw invalid(field, text.replace(/:[^@/]*@/, ':…@'), 'the password in a file of its own: --etcd-password-file')
  if (match === null || user === '') throw invalid(field, text.replace(/\/\/.*@/, '//…@'), EXPECTED)
  const endpoints = hosts.split(',').map((one) => parseEndpoint(one, field))
  if (endpoints.length > MAX_ENDPOINTS) throw invalid(field, text, `at most ${MAX_ENDPOINTS} endpoints`)
  const prefix = path.replace(/\/+$/, '') === '' ? DEFAULT_PREFIX : path.replace(/\/+$/, '')
  if (!/^(\/[A-Za-z0-9._-]+)+$/.test(prefix) || prefix.length > MAX_PREFIX)
    throw invalid(field, text, `a prefix such as ${DEFAULT_PREFIX}/prod: of letters, digits, '.', '_', '-' and '/'`)
  return { endpoints, prefix, ...(user === undefined ? {} : { user }) }
}

/**
 * Returns the URL of the same etcd with `path` appended to the prefix. `path` may have the characters of a prefix.
 * Throws as parseEtcdUrl() does.
 */
export function etcdUrlBelow(text: string, field: string, path: string): string {
  const { prefix } = parseEtcdUrl(text, field)
  const [start = text] = /^etcd:\/\/[^/]+/.exec(text) ?? []
  const below = `${start}${prefix}/${path}`
  parseEtcdUrl(below, field)
  return below
}

function parseEndpoint(text: string, field: string): HostPort {
  const hasPort = /:\d+$/.test(text) && !/^\[[^\]]*$/.test(text)
  return parseHostPort(hasPort ? text : `${text}:${DEFAULT_PORT}`, field)
}

function invalid(field: string, text: string, expected: string): UserError {
  return new UserError(`${field} ${JSON.stringify(text.slice(0, 300))}: expected ${expected}`, { exitCode: 2 })
}
