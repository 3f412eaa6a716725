/**
 * Which requests the console answers. A page of another origin may call a server on loopback, and a name may be turned
 * to its address later (DNS rebinding): so the Host must be the address that the console listens at, and an Origin must
 * be the console's own. Pure.
 */
import { createHash, timingSafeEqual } from 'node:crypto'

/** Whose a token is. `busy`: too many tokens are being reviewed, or the review got no answer. */
export type Reading = 'reader' | 'stranger' | 'busy'

/** What is read of a request. */
export interface AskedRequest {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
}

export interface AdmissionRules {
  readonly scheme: 'http' | 'https'
  /** The address that the console listens at. */
  readonly host: string
  readonly port: number
  /** Undefined: everyone who reaches the address may read. */
  readonly token: string | undefined
  /** The value of the cookie that a login gives. */
  readonly session: string
}

export type Admission =
  | { readonly t: 'answer' }
  | { readonly t: 'login' }
  /** `asks`: a person may enter the token. */
  | {
      readonly t: 'refused'
      readonly code: 400 | 401 | 403 | 405 | 503
      readonly text: string
      readonly asks?: boolean
    }

export const LOGIN_PATH = '/login'

/** A browser has one cookie of a name for all ports of an address (RFC 6265 section 8.5), and each console has its own. */
export function cookieName(port: number): string {
  return `sealane_console_${port}`
}

const LOOPBACK_NAMES: readonly string[] = ['localhost', '127.0.0.1', '[::1]']

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host)
}

/**
 * Decides for a console in a cluster, behind the API server's proxy. `reading` is what Readers says. The Host is that of
 * the API server, so that it says nothing: every request needs a token, and a browser sends none by itself. The command
 * that asks for the page is no page, so that it has no Origin.
 */
export function admitReader({ method, headers }: AskedRequest, reading: Reading): Admission {
  if (reading === 'stranger') return { t: 'refused', code: 401, text: 'expected the token of a reader' }
  if (method !== 'GET') return { t: 'refused', code: 405, text: 'only GET' }
  if (headers['origin'] !== undefined || headers['sec-fetch-site'] !== undefined) {
    return { t: 'refused', code: 403, text: 'expected the command sealane console --cluster, not a browser' }
  }
  return reading === 'reader' ? { t: 'answer' } : { t: 'refused', code: 503, text: 'try again in a moment' }
}

/** Decides by method, Host, Origin, and then by token. */
export function admit({ method, path, headers }: AskedRequest, rules: AdmissionRules): Admission {
  const isLogin = method === 'POST' && path === LOGIN_PATH && rules.token !== undefined
  if (method !== 'GET' && !isLogin) return { t: 'refused', code: 405, text: 'only GET' }
  const host = textOf(headers['host'])
  if (host === undefined || !isOwnHost(host, rules)) {
    return { t: 'refused', code: 403, text: 'Host: expected the address that the console listens at' }
  }
  const origin = headers['origin']
  if (origin !== undefined && origin !== `${rules.scheme}://${host}`) {
    return { t: 'refused', code: 403, text: 'Origin: expected the page of the console itself' }
  }
  // A browser says so also where it sends no Origin, as with images and scripts.
  const site = headers['sec-fetch-site']
  if (path !== '/' && site !== undefined && site !== 'same-origin' && site !== 'none') {
    return { t: 'refused', code: 403, text: 'Sec-Fetch-Site: expected same-origin or none' }
  }
  if (isLogin) return { t: 'login' }
  if (rules.token === undefined || hasToken(headers, rules.token) || hasSession(headers, rules)) {
    return { t: 'answer' }
  }
  return { t: 'refused', code: 401, text: 'expected the token of --token-file', asks: path === '/' }
}

/** An address that listens everywhere has many: any address literal counts then, but no name. */
function isOwnHost(host: string, { host: own, port, scheme }: AdmissionRules): boolean {
  const [, name = '', given] = /^(\[[0-9a-f:.]+\]|[^:[\]]+)(?::(\d{1,5}))?$/i.exec(host) ?? []
  const standard = scheme === 'https' ? 443 : 80
  if (name === '' || (given === undefined ? standard : Number(given)) !== port) return false
  const lower = name.toLowerCase()
  if (isLoopback(own)) return LOOPBACK_NAMES.includes(lower) || lower === bracketed(own)
  if (own === '0.0.0.0' || own === '::') return /^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]+\])$/.test(lower)
  return lower === bracketed(own).toLowerCase()
}

function bracketed(host: string): string {
  return host.includes(':') ? `[${host}]` : host
}

function hasToken(headers: AskedRequest['headers'], token: string): boolean {
  const given = /^Bearer (\S{1,4096})$/i.exec(textOf(headers['authorization']) ?? '')?.[1]
  return given !== undefined && isSameSecret(given, token)
}

function hasSession(headers: AskedRequest['headers'], { port, session }: AdmissionRules): boolean {
  const start = `${cookieName(port)}=`
  const pairs = (textOf(headers['cookie']) ?? '').split('; ').slice(0, 64)
  return pairs.some((pair) => pair.startsWith(start) && isSameSecret(pair.slice(start.length), session))
}

/** Takes the same time whatever differs: both are hashed first, so that not even the length shows. */
export function isSameSecret(a: string, b: string): boolean {
  return timingSafeEqual(hashOf(a), hashOf(b))
}

function hashOf(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}

function textOf(value: string | readonly string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined
}
