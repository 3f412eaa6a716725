/**
 * A TCP connection to a server through a proxy: CONNECT (RFC 9110 section 9.3.6) over http and https, SOCKS5 (RFC 1928,
 * with a password RFC 1929). The proxy resolves the name of the server. TLS, with certificates of both ends, runs
 * inside the connection, so the proxy sees the name of the server and nothing else.
 */
import { type Socket, connect, isIP, isIPv4, isIPv6 } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { parseAddress } from '../../model/addresses/addresses.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Proxy, ProxyTarget } from './proxy-rules.ts'

export interface TunnelInit {
  readonly clock: Clock
  readonly proxy: Proxy
  /** The server behind the proxy. */
  readonly to: ProxyTarget
  /** The time from now until the proxy has connected. */
  readonly timeoutMs: number
}

/** `ProxyAuthUnsupported`: the proxy takes no user and password, but only schemes such as NTLM. */
type ProxyReason = 'ProxyRefused' | 'ProxyAuthUnsupported'

/** The proxy cannot be reached, or does not connect to the server. The message never contains a password. */
export class ProxyError extends Error {
  readonly reason: ProxyReason
  constructor(proxy: Proxy, problem: string, options: ErrorOptions & { readonly reason?: ProxyReason } = {}) {
    const { reason = 'ProxyRefused', ...rest } = options
    super(`proxy ${proxy.title}: ${problem}`, rest)
    this.name = 'ProxyError'
    this.reason = reason
  }
}

/** Proxies answer with a few lines. */
const MAX_ANSWER = 16 << 10

/** Connects to the proxy and through it. Throws ProxyError, or the signal's reason. */
export function openTunnel(init: TunnelInit, signal: AbortSignal): Promise<Socket> {
  const { host, port } = init.proxy
  return tunnelOver(connect({ host, port }), init, signal)
}

/**
 * The same over a socket that is connected or connecting to the proxy. It is destroyed if this fails. Throws ProxyError,
 * or the signal's reason.
 */
export async function tunnelOver(socket: Socket, init: TunnelInit, signal: AbortSignal): Promise<Socket> {
  const { clock, proxy, timeoutMs } = init
  const end = new AbortController()
  const onAbort = (): void => end.abort(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  if (signal.aborted) onAbort()
  const cancel = clock.setTimer(timeoutMs, () => {
    end.abort(new ProxyError(proxy, `no connection to ${titleOf(init.to)} within ${timeoutMs / 1000} s`))
  })
  try {
    return await connected(socket, init, end.signal)
  } catch (error) {
    socket.destroy()
    if (end.signal.aborted) throw end.signal.reason
    throw error instanceof ProxyError ? error : new ProxyError(proxy, reasonOf(error), { cause: error })
  } finally {
    cancel()
    signal.removeEventListener('abort', onAbort)
  }
}

async function connected(socket: Socket, { proxy, to }: TunnelInit, signal: AbortSignal): Promise<Socket> {
  if (/[\p{Cc}\s]/u.test(to.host)) throw new ProxyError(proxy, 'the name of the server has characters that no name has')
  const conversation = new Conversation(await secured(socket, proxy, signal), signal)
  if (proxy.scheme === 'socks5') await socks(conversation, proxy, to)
  else await connectMethod(conversation, proxy, to)
  return conversation.done()
}

/** With TLS, if the proxy is called by https. */
async function secured(socket: Socket, { scheme, host }: Proxy, signal: AbortSignal): Promise<Socket> {
  if (scheme !== 'https') {
    if (socket.connecting) await happens(socket, 'connect', signal)
    return socket
  }
  const servername = isIP(host) === 0 ? { servername: host } : {}
  const tls = connectTls({ socket, host, ALPNProtocols: ['http/1.1'], ...servername })
  await happens(tls, 'secureConnect', signal)
  return tls
}

function happens(socket: Socket, event: string, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (): void => {
      socket.off(event, onEvent)
      socket.off('error', fail)
      socket.off('close', onClose)
      signal.removeEventListener('abort', onAbort)
    }
    const onEvent = (): void => {
      settle()
      resolve()
    }
    const fail = (error: Error): void => {
      settle()
      // A destroyed socket may emit another error.
      socket.on('error', () => undefined)
      socket.destroy()
      reject(error)
    }
    const onClose = (): void => fail(new Error('it closed the connection'))
    const onAbort = (): void => fail(signal.reason as Error)
    socket.once(event, onEvent)
    socket.once('error', fail)
    socket.once('close', onClose)
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
  })
}

/** Undefined while bytes are missing. `length` is how many bytes the answer has. */
type Parse<T> = (bytes: Buffer) => { readonly value: T; readonly length: number } | undefined

/** Sends and receives until the connection belongs to the caller. */
class Conversation {
  readonly #socket: Socket
  readonly #signal: AbortSignal
  #bytes = Buffer.alloc(0)

  constructor(socket: Socket, signal: AbortSignal) {
    this.#socket = socket
    this.#signal = signal
  }

  send(bytes: string | Uint8Array): void {
    this.#socket.write(bytes)
  }

  async receive<T>(parse: Parse<T>): Promise<T> {
    for (;;) {
      const found = parse(this.#bytes)
      if (found !== undefined) {
        this.#bytes = this.#bytes.subarray(found.length)
        return found.value
      }
      if (this.#bytes.length >= MAX_ANSWER) throw new Error(`its answer has more than ${MAX_ANSWER} bytes`)
      this.#bytes = Buffer.concat([this.#bytes, await this.#more()])
    }
  }

  /** What the server sent with the proxy's answer is left in the socket. */
  done(): Socket {
    if (this.#bytes.length > 0) this.#socket.unshift(this.#bytes)
    return this.#socket
  }

  async #more(): Promise<Buffer> {
    for (;;) {
      const chunk = this.#socket.read() as Buffer | null
      if (chunk !== null) return chunk
      if (this.#socket.readableEnded) throw new Error('it closed the connection')
      await happens(this.#socket, 'readable', this.#signal)
      // An ended stream is readable too, and gives nothing.
      if (this.#socket.readableLength === 0) {
        const last = this.#socket.read() as Buffer | null
        if (last === null) throw new Error('it closed the connection')
        return last
      }
    }
  }
}

async function connectMethod(conversation: Conversation, proxy: Proxy, to: ProxyTarget): Promise<void> {
  const { login } = proxy
  const where = titleOf(to)
  const credentials = login === undefined ? undefined : base64(`${login.user}:${login.password}`)
  conversation.send(
    [
      `CONNECT ${where} HTTP/1.1`,
      `Host: ${where}`,
      'User-Agent: sealane',
      ...(credentials === undefined ? [] : [`Proxy-Authorization: Basic ${credentials}`]),
      '\r\n',
    ].join('\r\n'),
  )
  const { status, head } = await conversation.receive(parseAnswer)
  if (status >= 200 && status <= 299) return
  if (status === 407) {
    const schemes = proxySchemes(head)
    if (schemes.length > 0 && !schemes.includes('basic')) {
      const problem = `it wants ${schemes.join(' or ')}, which Sealane does not support: expected basic (status 407)`
      throw new ProxyError(proxy, problem, { reason: 'ProxyAuthUnsupported' })
    }
    const what = login === undefined ? 'wants a user and a password' : 'refuses the user or the password'
    throw new ProxyError(proxy, `it ${what} (status 407)`)
  }
  throw new ProxyError(proxy, `it does not connect to ${where} (status ${status})`)
}

const HEAD_END = '\r\n\r\n'

interface Answer {
  readonly status: number
  /** The lines of the answer, without the empty one at the end. */
  readonly head: string
}

const parseAnswer: Parse<Answer> = (bytes) => {
  const start = bytes.subarray(0, 12).toString('latin1')
  if (!'HTTP/1.'.startsWith(start.slice(0, 7))) throw new Error('its answer is not HTTP')
  const end = bytes.indexOf(HEAD_END)
  if (end < 0) return undefined
  const status = /^HTTP\/1\.[01] ([1-5]\d\d)(?=[ \r])/.exec(bytes.subarray(0, 13).toString('latin1'))?.[1]
  if (status === undefined) throw new Error('its answer is not HTTP')
  const head = bytes.subarray(0, end).toString('latin1')
  return { value: { status: Number(status), head }, length: end + HEAD_END.length }
}

/** Schemes that a message names, and the longest name of one. */
const MOST_SCHEMES = 8
const MAX_SCHEME = 32

/**
 * The authentication schemes that an answer of a proxy offers (RFC 9110 section 11.7.1), in small letters. Takes the
 * lines of the answer. A challenge is a scheme, alone or with parameters after a space; parameters alone contain `=`.
 */
export function proxySchemes(head: string): readonly string[] {
  const offers = head
    .split('\r\n')
    .flatMap((line) => /^proxy-authenticate:(.*)$/i.exec(line)?.[1] ?? [])
    // Quoted texts, such as realms, may contain commas.
    .flatMap((value) => value.replaceAll(/"(?:\\.|[^"\\])*"/g, '""').split(','))
  const schemes = offers.flatMap((offer) => {
    const [, scheme, rest = ''] = /^\s*([!#$%&'*+.^_`|~\w-]+)(.*)$/.exec(offer) ?? []
    const isScheme = scheme !== undefined && scheme.length <= MAX_SCHEME && !/^\s*=/.test(rest)
    return isScheme ? [scheme.toLowerCase()] : []
  })
  // Basic must not be lost behind many others.
  const known = [...new Set(schemes)].sort((a, b) => Number(b === 'basic') - Number(a === 'basic'))
  return known.slice(0, MOST_SCHEMES)
}

const VERSION = 5
const NO_LOGIN = 0
const PASSWORD = 2
const REFUSALS = [
  'it failed',
  'its rules do not allow it',
  'the network is unreachable',
  'the host is unreachable',
  'the connection was refused',
  'it took too long',
  'it does not support CONNECT',
  'it does not support this kind of address',
]

async function socks(conversation: Conversation, proxy: Proxy, to: ProxyTarget): Promise<void> {
  const { login } = proxy
  const methods = login === undefined ? [NO_LOGIN] : [NO_LOGIN, PASSWORD]
  conversation.send(Uint8Array.of(VERSION, methods.length, ...methods))
  const method = await conversation.receive(parsePair(VERSION))
  if (method === PASSWORD && login !== undefined) {
    conversation.send(Buffer.concat([Buffer.of(1), sized(login.user), sized(login.password)]))
    if ((await conversation.receive(parsePair(1))) !== 0) {
      throw new ProxyError(proxy, 'it refuses the user or the password')
    }
  } else if (method !== NO_LOGIN) {
    const what = login === undefined ? 'wants a user and a password' : 'takes no password'
    throw new ProxyError(proxy, `it ${what}`)
  }
  conversation.send(Buffer.concat([Buffer.of(VERSION, 1, 0), socksAddress(to.host), port16(to.port)]))
  const refusal = await conversation.receive(parseSocksAnswer)
  if (refusal === 0) return
  const why = REFUSALS[refusal - 1] ?? `code ${refusal}`
  throw new ProxyError(proxy, `it does not connect to ${titleOf(to)}: ${why}`)
}

/** Two bytes: the version and a choice. */
function parsePair(version: number): Parse<number> {
  return (bytes) => {
    if (bytes.length > 0 && bytes[0] !== version) throw new Error('its answer is not SOCKS5')
    return bytes.length < 2 ? undefined : { value: bytes[1] ?? 0, length: 2 }
  }
}

/** RFC 1928 section 6: version, reply, reserved, and an address of one of three kinds with a port. */
const parseSocksAnswer: Parse<number> = (bytes) => {
  if (bytes.length > 0 && bytes[0] !== VERSION) throw new Error('its answer is not SOCKS5')
  if (bytes.length < 5) return undefined
  const sizes: Readonly<Record<number, number>> = { 1: 4, 3: 1 + (bytes[4] ?? 0), 4: 16 }
  const size = sizes[bytes[3] ?? 0]
  if (size === undefined) throw new Error('its answer is not SOCKS5')
  const length = 4 + size + 2
  return bytes.length < length ? undefined : { value: bytes[1] ?? 0, length }
}

function socksAddress(host: string): Buffer {
  if (isIPv4(host)) return Buffer.of(1, ...host.split('.').map(Number))
  if (!isIPv6(host)) return Buffer.concat([Buffer.of(3), sized(host)])
  const digits = parseAddress(host).value.toString(16).padStart(32, '0')
  return Buffer.concat([Buffer.of(4), Buffer.from(digits, 'hex')])
}

function port16(port: number): Buffer {
  return Buffer.of(port >> 8, port & 0xff)
}

/** With its length in front. Throws if it has more than 255 bytes. */
function sized(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8')
  if (bytes.length > 255) throw new Error('a name or password has more than 255 bytes')
  return Buffer.concat([Buffer.of(bytes.length), bytes])
}

function titleOf({ host, port }: ProxyTarget): string {
  return `${isIP(host) === 6 ? `[${host}]` : host}:${port}`
}

function base64(text: string): string {
  return Buffer.from(text, 'utf8').toString('base64')
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  const texts: Readonly<Record<string, string>> = {
    ECONNREFUSED: 'connection refused: nothing listens there',
    ECONNRESET: 'it closed the connection',
    EPIPE: 'it closed the connection',
    ENOTFOUND: 'no such host name',
    EAI_AGAIN: 'the lookup of the host name failed',
    EHOSTUNREACH: 'no route to that host',
    ENETUNREACH: 'no route to that network',
    ETIMEDOUT: 'no answer',
  }
  return texts[code ?? ''] ?? message
}
