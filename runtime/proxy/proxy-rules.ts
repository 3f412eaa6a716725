/**
 * Which proxy leads to a server, by HTTPS_PROXY, HTTP_PROXY and NO_PROXY. Programs disagree about these variables; the
 * rules here are those of Go (golang.org/x/net/http/httpproxy), so that kubectl and Sealane take the same way. Pure.
 */
import { BlockList, isIP, isIPv6 } from 'node:net'
import { UserError, errorOf } from '../runtime.ts'

export interface Proxy {
  readonly scheme: 'http' | 'https' | 'socks5'
  /** A name or an address, without brackets. */
  readonly host: string
  readonly port: number
  /** Never part of a message. */
  readonly login?: { readonly user: string; readonly password: string }
  /** For messages: scheme, host and port. */
  readonly title: string
}

export interface ProxyTarget {
  /** A name or an address, without brackets. */
  readonly host: string
  readonly port: number
}

/** Undefined: the server is called directly. */
export type ProxyChoice = (target: ProxyTarget) => Proxy | undefined

const PORTS: Readonly<Record<string, readonly [Proxy['scheme'], number]>> = {
  'http:': ['http', 80],
  'https:': ['https', 443],
  'socks5:': ['socks5', 1080],
  'socks5h:': ['socks5', 1080],
}

/**
 * Parses the URL of a proxy; without a scheme it is http. `field` is where it is written. Throws UserError, without the
 * value: it may contain a password.
 */
export function parseProxy(text: string, field: string): Proxy {
  const wrong = (): UserError => {
    return new UserError(`${field}: expected the URL of a proxy, such as http://proxy.example:3128`, {
      hint: 'http, https and socks5 are supported; the value is not shown, since it may contain a password',
    })
  }
  const url = text.includes('://') ? text : `http://${text}`
  if (/[\p{Cc}\s]/u.test(text) || !URL.canParse(url)) throw wrong()
  const { protocol, hostname, port, username, password, pathname, search } = new URL(url)
  const [scheme, usual] = PORTS[protocol] ?? []
  const host = hostname.replace(/^\[|\]$/g, '')
  if (scheme === undefined || usual === undefined || host === '' || !['', '/'].includes(pathname) || search !== '') {
    throw wrong()
  }
  const at = { host, port: port === '' ? usual : Number(port) }
  const shown = `${scheme}://${isIPv6(host) ? `[${host}]` : host}:${at.port}`
  try {
    const login = { user: decodeURIComponent(username), password: decodeURIComponent(password) }
    return { scheme, ...at, title: shown, ...(username === '' && password === '' ? {} : { login }) }
  } catch {
    throw wrong()
  }
}

type Env = Readonly<Record<string, string | undefined>>

/**
 * The proxy for servers with TLS (`https`) or without. The names in capitals come first. Throws UserError for a proxy
 * that cannot be parsed. The machine's own addresses are never called through a proxy.
 */
export function proxyChoice(env: Env, scheme: 'https' | 'http' = 'https'): ProxyChoice {
  const field = scheme === 'https' ? 'HTTPS_PROXY' : 'HTTP_PROXY'
  const text = either(env, field)
  if (text === '') return () => undefined
  const proxy = parseProxy(text, field)
  const isExempt = exemptions(either(env, 'NO_PROXY'))
  return (target) => (isOwn(target.host) || isExempt(target) ? undefined : proxy)
}

/**
 * The same, but a proxy that cannot be parsed makes each call fail with the UserError, and not the start: a gateway
 * must run whatever its environment contains, and must not pass by a proxy.
 */
export function proxyChoiceOnCall(env: Env): ProxyChoice {
  try {
    return proxyChoice(env)
  } catch (error) {
    const failure = errorOf(error)
    return () => {
      throw failure
    }
  }
}

function either(env: Env, name: string): string {
  const text = env[name] ?? ''
  return (text === '' ? (env[name.toLowerCase()] ?? '') : text).trim()
}

function isOwn(host: string): boolean {
  const name = plainName(host)
  return name === 'localhost' || inRange(LOOPBACK, name)
}

const LOOPBACK = new BlockList()
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4')
LOOPBACK.addAddress('::1', 'ipv6')

/**
 * A list such as `10.0.0.0/8,192.0.2.7:6443,.example.org,host.test`. A domain stands for itself and all names below it,
 * with a dot (or `*.`) in front only for those below. `*` is everything. What cannot be read matches nothing.
 */
function exemptions(list: string): (target: ProxyTarget) => boolean {
  const entries = list
    .split(',')
    .map((entry) => entry.trim().toLowerCase())
    .filter((entry) => entry !== '')
  if (entries.includes('*')) return () => true
  const rules = entries.map(exemption)
  return ({ host, port }) => {
    const name = plainName(host)
    return rules.some((matches) => matches(name, port))
  }
}

type Exemption = (name: string, port: number) => boolean

function exemption(entry: string): Exemption {
  const [network = '', length = ''] = entry.split('/')
  if (isIP(network) !== 0 && /^\d{1,3}$/.test(length)) return within(network, Number(length))
  const { host, port } = splitPort(entry)
  const onPort = (at: number): boolean => port === undefined || port === at
  if (isIP(host) !== 0) {
    const inside = within(host, isIPv6(host) ? 128 : 32)
    return (name, at) => onPort(at) && inside(name, at)
  }
  const domain = host.replace(/^\*\./, '.').replace(/\.$/, '')
  if (domain === '' || domain === '.') return () => false
  const isBelowOnly = domain.startsWith('.')
  const suffix = isBelowOnly ? domain : `.${domain}`
  return (name, at) => onPort(at) && (name.endsWith(suffix) || (!isBelowOnly && name === domain))
}

function within(network: string, length: number): Exemption {
  const range = new BlockList()
  try {
    range.addSubnet(network, length, isIPv6(network) ? 'ipv6' : 'ipv4')
  } catch {
    // The length is too great.
    return () => false
  }
  return (name) => inRange(range, name)
}

function inRange(range: BlockList, text: string): boolean {
  const family = isIP(text)
  return family !== 0 && range.check(text, family === 6 ? 'ipv6' : 'ipv4')
}

/** The port is undefined if there is none. */
function splitPort(entry: string): { readonly host: string; readonly port: number | undefined } {
  if (isIPv6(entry)) return { host: entry, port: undefined }
  const [, host = '', port] = /^(.*?)(?::(\d{1,5}))?$/su.exec(entry) ?? []
  return { host: host.replace(/^\[|\]$/g, ''), port: port === undefined ? undefined : Number(port) }
}

function plainName(host: string): string {
  return host.toLowerCase().replace(/\.$/, '')
}
