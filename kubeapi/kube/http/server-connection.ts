/**
 * The connection to the API server: one HTTP/2 connection for all requests if the server supports it, with pings that
 * detect a dead peer; else HTTP/1.1 with a bounded pool. TLS (ALPN) decides at the first connection.
 */
import type { Agent, IncomingMessage } from 'node:http'
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2'
import { Agent as HttpsAgent, request as requestHttps } from 'node:https'
import type { Duplex, Readable } from 'node:stream'
import { type TLSSocket, connect as connectTls } from 'node:tls'
import { type Clock, orAborted } from '../../../reconcile/reconcile.ts'
import { Agent as HttpAgent, request as requestHttp } from '../../../runtime/http/http.ts'
import { type Proxy, openTunnel } from '../../../runtime/proxy/proxy.ts'
import { LoginError } from '../kube-error.ts'
import type { Credentials, RequestHeaders, ServerAccess } from '../server-access.ts'
import { CONNECT_MS, proxiedAgent, targetOf, tlsOptions } from './proxied-agent.ts'

export interface Exchange {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Includes the query. */
  readonly path: string
  readonly headers?: RequestHeaders
  readonly body?: string | undefined
}

export interface Answer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  /** Destroying it ends the exchange. */
  readonly body: Readable
}

interface PlainRequestsInit {
  readonly server: URL
  readonly agent: Agent
}

/** Requests over HTTP/1.1. */
class PlainRequests {
  readonly #init: PlainRequestsInit

  constructor(init: PlainRequestsInit) {
    this.#init = init
  }

  send(exchange: Exchange, signal: AbortSignal): Promise<Answer> {
    const { server, agent } = this.#init
    const { method, path, headers, body } = exchange
    return new Promise((resolve, reject) => {
      const options = {
        method,
        agent,
        signal,
        headers: { ...headers, ...(body === undefined ? {} : { 'content-length': Buffer.byteLength(body) }) },
      }
      const onResponse = (response: IncomingMessage): void => {
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: response })
      }
      const send = server.protocol === 'http:' ? requestHttp : requestHttps
      const request = send(new URL(path, server.origin), options, onResponse)
      request.once('error', reject)
      request.end(body)
    })
  }

  close(): void {
    this.#init.agent.destroy()
  }
}

const PING_EVERY_MS = 10_000
const PONG_WITHIN_MS = 10_000
/** Bytes that the server may send ahead on one stream and on all. They bound the memory of this connection. */
const STREAM_WINDOW = 1 << 20
const SESSION_WINDOW = 4 << 20

interface PingedSessionInit {
  readonly origin: string
  readonly socket: Duplex
}

/**
 * One HTTP/2 connection. Pings (RFC 9113 section 6.7) detect a peer that died, or a middlebox that dropped the
 * connection, within PING_EVERY_MS + PONG_WITHIN_MS = 20 s. All pending requests then fail, and the next one opens a
 * new connection.
 */
class KeepaliveConnection {
  readonly #clock: Clock
  readonly #session: ClientHttp2Session
  #cancelTimer: (() => void) | undefined

  constructor({ clock }: { readonly clock: Clock }, { origin, socket }: PingedSessionInit) {
    this.#clock = clock
    this.#session = connect(origin, {
      createConnection: () => socket,
      maxSessionMemory: 64,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW },
    })
    this.#session.once('connect', () => this.#session.setLocalWindowSize(SESSION_WINDOW))
    // Pending requests fail by themselves with the error.
    this.#session.on('error', () => undefined)
    this.#session.once('close', () => this.#cancelTimer?.())
    this.#schedulePing()
  }

  /** False once the server accepts no more requests (GOAWAY) or the connection is closed. */
  get usable(): boolean {
    return !this.#session.closed && !this.#session.destroyed
  }

  send(exchange: Exchange, signal: AbortSignal): Promise<Answer> {
    const { method, path, headers, body } = exchange
    return new Promise((resolve, reject) => {
      signal.throwIfAborted()
      const stream = this.#session.request(
        { ...headers, [constants.HTTP2_HEADER_METHOD]: method, [constants.HTTP2_HEADER_PATH]: path },
        { endStream: body === undefined, signal },
      )
      let isAnswered = false
      stream.once('response', (answer) => {
        isAnswered = true
        resolve({ status: answer[':status'] ?? 0, headers: answer, body: stream })
      })
      stream.on('error', reject)
      stream.once('close', () => {
        if (!isAnswered) reject(closedEarly(stream))
      })
      if (body !== undefined) stream.end(body)
    })
  }

  /** Accepts no more requests, and closes when the pending ones have ended. */
  retire(): void {
    this.#session.close()
  }

  /** Ends all requests at once. */
  close(): void {
    this.#cancelTimer?.()
    this.#session.destroy()
  }

  #schedulePing(): void {
    this.#cancelTimer = this.#clock.setTimer(PING_EVERY_MS, () => {
      if (this.#session.destroyed) return
      const late = this.#clock.setTimer(PONG_WITHIN_MS, () => {
        this.#session.destroy(
          new Error(`the connection went silent: no answer to a ping in ${PONG_WITHIN_MS / 1000} s`),
        )
      })
      this.#cancelTimer = late
      try {
        this.#session.ping((error) => {
          late()
          if (error === null) this.#schedulePing()
        })
      } catch {
        // The connection has ended in the meantime.
        late()
      }
    })
  }
}

function closedEarly(stream: ClientHttp2Stream): Error {
  return new Error(`the server ended the request without an answer (HTTP/2 code ${stream.rstCode})`)
}

export interface ServerConnectionDeps {
  readonly clock: Clock
  readonly access: ServerAccess
}

/** Sockets of the HTTP/1.1 pool: one for each watched kind, and some for requests. */
const MAX_SOCKETS = 32
/** The interval of TCP keepalive, for peers that disappear between our pings. */
const KEEP_ALIVE_MS = 15_000

export class ServerConnection {
  readonly #deps: ServerConnectionDeps
  /** Undefined until the first connection. */
  #speaksHttp2: boolean | undefined
  #session: KeepaliveConnection | undefined
  /** A pending connection, shared by all requests that wait for one. */
  #dialing: Promise<KeepaliveConnection | undefined> | undefined
  #plain: PlainRequests | undefined
  #asking: Promise<Credentials> | undefined
  readonly #stop = new AbortController()

  constructor(deps: ServerConnectionDeps) {
    this.#deps = deps
    if (deps.access.server.protocol === 'http:') this.#speaksHttp2 = false
  }

  /** Whether a dead peer is detected without a request. */
  get pinged(): boolean {
    return this.#speaksHttp2 === true
  }

  /** Resolves with the status and headers of the answer; the body is a stream. Rejects if there is no answer. */
  async send(exchange: Exchange, signal: AbortSignal): Promise<Answer> {
    const credentials = await orAborted(this.#credentials(), signal)
    const prepared: Exchange = {
      ...exchange,
      path: `${this.#deps.access.server.pathname.replace(/\/$/, '')}${exchange.path}`,
      headers: { 'user-agent': 'sealane', accept: 'application/json', ...credentials.headers, ...exchange.headers },
    }
    if (this.#speaksHttp2 !== false) {
      const session = await this.#openSession(credentials, signal)
      if (session !== undefined) return session.send(prepared, signal)
    }
    return this.#plainRequests(credentials).send(prepared, signal)
  }

  /** The server rejected our credentials: the next request uses current ones on a new connection. */
  renew(): void {
    this.#deps.access.forget()
    this.#session?.retire()
    this.#session = undefined
    this.#plain?.close()
    this.#plain = undefined
  }

  close(): void {
    this.#stop.abort(new Error('the connection is closed'))
    this.#plain?.close()
    this.#session?.close()
  }

  /**
   * Requests credentials each time, but only once for concurrent callers: a plugin is a process, sometimes a browser.
   */
  #credentials(): Promise<Credentials> {
    this.#asking ??= this.#deps.access
      .credentials(this.#stop.signal)
      .catch((error: unknown) => {
        throw new LoginError(error)
      })
      .finally(() => {
        this.#asking = undefined
      })
    return this.#asking
  }

  /** Undefined if the server supports only HTTP/1.1. */
  async #openSession(credentials: Credentials, signal: AbortSignal): Promise<KeepaliveConnection | undefined> {
    this.#stop.signal.throwIfAborted()
    if (this.#session?.usable === true) return this.#session
    this.#dialing ??= this.#dial(credentials).finally(() => {
      this.#dialing = undefined
    })
    return orAborted(this.#dialing, signal)
  }

  async #dial(credentials: Credentials): Promise<KeepaliveConnection | undefined> {
    const { clock, access } = this.#deps
    const { server, proxy } = access
    const socket = await dial({ clock, server, proxy, credentials }, this.#stop.signal)
    this.#speaksHttp2 = socket.alpnProtocol === 'h2'
    if (!this.#speaksHttp2 || this.#stop.signal.aborted) {
      socket.destroy()
      return undefined
    }
    this.#session = new KeepaliveConnection({ clock }, { origin: server.origin, socket })
    return this.#session
  }

  #plainRequests(credentials: Credentials): PlainRequests {
    this.#stop.signal.throwIfAborted()
    this.#plain ??= new PlainRequests({
      server: this.#deps.access.server,
      agent: this.#makeAgent(credentials),
    })
    return this.#plain
  }

  #makeAgent(credentials: Credentials): Agent {
    const options = { keepAlive: true, keepAliveMsecs: KEEP_ALIVE_MS, maxSockets: MAX_SOCKETS, timeout: 0 }
    const { clock, access } = this.#deps
    const { server, proxy } = access
    if (proxy !== undefined) return proxiedAgent({ clock, proxy, server, credentials, options })
    if (server.protocol === 'http:') return new HttpAgent(options)
    return new HttpsAgent({ ...options, ...tlsOptions(server, credentials) })
  }
}

interface DialInit {
  readonly clock: Clock
  readonly server: URL
  readonly proxy: Proxy | undefined
  readonly credentials: Credentials
}

/** Aborted by the signal: a handshake that no request waits for would keep the process alive. */
async function dial({ clock, server, proxy, credentials }: DialInit, signal: AbortSignal): Promise<TLSSocket> {
  const to = targetOf(server)
  const tunnel = proxy === undefined ? undefined : await openTunnel({ clock, proxy, to, timeoutMs: CONNECT_MS }, signal)
  return new Promise((resolve, reject) => {
    const socket = connectTls({
      ...(tunnel === undefined ? {} : { socket: tunnel }),
      ...to,
      ALPNProtocols: ['h2', 'http/1.1'],
      ...tlsOptions(server, credentials),
    })
    const settle = (): void => {
      cancel()
      signal.removeEventListener('abort', onAbort)
    }
    const fail = (error: Error): void => {
      settle()
      socket.destroy()
      reject(error)
    }
    const onAbort = (): void => fail(signal.reason as Error)
    signal.addEventListener('abort', onAbort, { once: true })
    const cancel = clock.setTimer(CONNECT_MS, () => fail(new Error(`no connection within ${CONNECT_MS / 1000} s`)))
    socket.once('error', fail)
    socket.once('close', () => fail(new Error('the server closed the connection')))
    socket.once('secureConnect', () => {
      settle()
      socket.removeAllListeners('error')
      socket.removeAllListeners('close')
      socket.setNoDelay(true)
      socket.setKeepAlive(true, KEEP_ALIVE_MS)
      resolve(socket)
    })
  })
}
