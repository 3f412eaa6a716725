/**
 * The connection of a node to the hub of its site: one HTTP/2 session, made when it is needed, at the first address that
 * answers. A session that answers no ping is given up. While no hub can be reached, requests fail at once.
 */
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from 'node:http2'
import { type TLSSocket, connect as connectTls } from 'node:tls'
import type { Kind } from '../../model/model.ts'
import { Backoff, type Clock, orAborted } from '../../reconcile/reconcile.ts'
import { formatHostPort, messageOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { ClusterApiError } from '../kubeapi.ts'
import {
  type EnrolRequest,
  type HubAnswer,
  type HubRequest,
  LineSplitter,
  MAX_LINE,
  type PeerAnswer,
  type PeerRequest,
  type WatchLine,
  parsePeerAnswer,
  parseRefusal,
  parseWatchLine,
} from './wire.ts'

/** PEM texts. */
export interface NodeTls {
  /** The authority of the site. */
  readonly ca: string
  /** Absent before the node has enrolled. */
  readonly own?: { readonly key: string; readonly cert: string } | undefined
  /** The name in the certificate of the hub. */
  readonly serverName: string
}

export interface HubConnectionDeps {
  readonly clock: Clock
  readonly logger: Logger
}

export interface HubConnectionInit {
  /** At least one. */
  readonly addresses: readonly { readonly host: string; readonly port: number }[]
  /** Read for each connection, since certificates are renewed. */
  readonly tls: () => NodeTls
  /** Between hubs: the hub at the address is wanted whether it acts or follows. */
  readonly anyHub?: boolean
}

const CONNECT_MS = 5000
const REQUEST_MS = 10_000
/** A hub that is silent for one to two of these is lost. */
const PING_MS = 5000
const RETRY = { minMs: 500, maxMs: 5000 }

export class HubConnection {
  readonly #deps: HubConnectionDeps
  readonly #init: HubConnectionInit
  readonly #backoff: Backoff
  readonly #stop = new AbortController()
  #session: ClientHttp2Session | undefined
  #connecting: Promise<ClientHttp2Session> | undefined
  /** Set while no hub can be reached: the reason, and when the next attempt may begin, in monotonic milliseconds. */
  #away: { readonly why: string; readonly untilMs: number } | undefined
  #first = 0
  /** The highest term of a hub that it knows. An earlier acting hub that does not know of it is refused. */
  #term = 0

  constructor(deps: HubConnectionDeps, init: HubConnectionInit) {
    this.#deps = deps
    this.#init = init
    this.#backoff = new Backoff(deps.clock, RETRY)
  }

  /** Why the hub cannot be reached now; undefined if it can, or if that was not tried yet. */
  get trouble(): string | undefined {
    return this.#away?.why
  }

  /** Throws ClusterApiError: what the hub refuses, or Unavailable. Rejects with the signal's reason. */
  async ask(request: HubRequest, signal?: AbortSignal): Promise<HubAnswer> {
    return this.#post('/v1/ask', request, signal)
  }

  async enrol(request: EnrolRequest, signal?: AbortSignal): Promise<HubAnswer> {
    return this.#post('/v1/enrol', request, signal)
  }

  /** Asks another hub. Throws ClusterApiError. */
  async askPeer(request: PeerRequest, signal?: AbortSignal): Promise<PeerAnswer> {
    return parsePeerAnswer((await this.#post('/v1/hub', request, signal)).value)
  }

  /**
   * Calls back for each line, until the watch ends; then it throws ClusterApiError. An error of the callback ends the
   * watch.
   */
  async watch(kind: Kind, onLine: (line: WatchLine) => void): Promise<never> {
    const session = await this.#open()
    const stream = session.request({ ':method': 'GET', ':path': `/v1/watch/${kind}` })
    const lines = new LineSplitter()
    await exchange(stream, (data) => {
      for (const line of lines.add(data)) onLine(parseWatchLine(kind, line))
    })
    throw new ClusterApiError('Unavailable', 'the hub has ended the watch')
  }

  /** Makes a new connection for what follows, with the present certificate. */
  reset(): void {
    this.#session?.destroy()
    this.#session = undefined
    this.#away = undefined
  }

  close(): void {
    this.#stop.abort(new ClusterApiError('Unavailable', 'the cluster API is closed'))
    this.#session?.destroy()
  }

  async #post(path: string, body: HubRequest | EnrolRequest | PeerRequest, signal?: AbortSignal): Promise<HubAnswer> {
    const { clock } = this.#deps
    const late = new AbortController()
    const cancel = clock.setTimer(REQUEST_MS, () => late.abort(unavailable('the hub does not answer in time')))
    const signals = [this.#stop.signal, late.signal, ...(signal === undefined ? [] : [signal])]
    const limited = AbortSignal.any(signals)
    try {
      limited.throwIfAborted()
      const session = await orAborted(this.#open(), limited)
      limited.throwIfAborted()
      const stream = session.request({ ':method': 'POST', ':path': path })
      const abandon = (): void => void stream.destroy()
      limited.addEventListener('abort', abandon, { once: true })
      try {
        return await orAborted(answerOf(stream, JSON.stringify(body)), limited)
      } finally {
        limited.removeEventListener('abort', abandon)
      }
    } finally {
      cancel()
    }
  }

  #open(): Promise<ClientHttp2Session> {
    this.#stop.signal.throwIfAborted()
    const session = this.#session
    if (session !== undefined && !session.destroyed && !session.closed) return Promise.resolve(session)
    const away = this.#away
    if (away !== undefined && this.#deps.clock.monotonic() < away.untilMs) return Promise.reject(unavailable(away.why))
    this.#connecting ??= this.#connect().finally(() => (this.#connecting = undefined))
    return this.#connecting
  }

  async #connect(): Promise<ClientHttp2Session> {
    const { clock, logger } = this.#deps
    const { addresses } = this.#init
    const reasons: string[] = []
    for (let tried = 0; tried < addresses.length; tried += 1) {
      const at = (this.#first + tried) % addresses.length
      const address = addresses[at]
      if (address === undefined) continue
      try {
        const session = await this.#connectTo(address)
        await this.#checkActing(session)
        if (this.#away !== undefined) {
          const text =
            this.#init.anyHub === true ? 'another hub of the site answers again' : 'the hub of the site answers again'
          logger.info(text, { hub: formatHostPort(address) })
        }
        this.#first = at
        this.#away = undefined
        this.#backoff.reset()
        this.#session = session
        return session
      } catch (error) {
        reasons.push(`${formatHostPort(address)}: ${messageOf(error)}`)
      }
    }
    const why = `no hub of the site can be reached: ${reasons.join('; ')}`
    if (this.#away === undefined) {
      const reason = 'HubUnreachable'
      const text =
        this.#init.anyHub === true
          ? 'another hub of the site cannot be reached'
          : 'no hub of the site can be reached; this node goes on with what it knows'
      logger.warn(text, { reason, why })
    }
    this.#away = { why, untilMs: clock.monotonic() + this.#backoff.next() }
    throw unavailable(why)
  }

  /** Only one of several hubs acts. Throws ClusterApiError for the others, and ends their session. */
  async #checkActing(session: ClientHttp2Session): Promise<void> {
    if (this.#init.anyHub === true || this.#init.addresses.length < 2) return
    const { clock } = this.#deps
    const late = new AbortController()
    const cancel = clock.setTimer(CONNECT_MS, () => late.abort(unavailable('the hub does not answer in time')))
    try {
      const stream = session.request({ ':method': 'GET', ':path': '/v1/acting' })
      const { value } = await orAborted(answerOf(stream), AbortSignal.any([late.signal, this.#stop.signal]))
      const term = typeof value === 'number' ? value : 0
      if (term < this.#term) throw unavailable(`another hub acts in term ${this.#term}, and this one in term ${term}`)
      this.#term = term
    } catch (error) {
      session.destroy()
      throw error
    } finally {
      cancel()
    }
  }

  async #connectTo(address: { readonly host: string; readonly port: number }): Promise<ClientHttp2Session> {
    const socket = await this.#secured(address)
    const session = connect(`https://${formatHostPort(address)}`, {
      createConnection: () => socket,
      maxSessionMemory: 64,
      settings: { enablePush: false },
    })
    const stopped = (): void => session.destroy()
    this.#stop.signal.addEventListener('abort', stopped, { once: true })
    session.on('error', () => undefined)
    const end = this.#ping(session)
    session.on('close', () => {
      end()
      this.#stop.signal.removeEventListener('abort', stopped)
      if (this.#session === session) this.#session = undefined
    })
    return session
  }

  /**
   * A TLS connection after its handshake. It is made before the session, because a session that has no connection yet
   * does not end when it is destroyed.
   */
  async #secured(address: { readonly host: string; readonly port: number }): Promise<TLSSocket> {
    const { ca, own, serverName } = this.#init.tls()
    const tls = { ca, ...own, servername: serverName, minVersion: 'TLSv1.3' } as const
    const socket = connectTls({ ...address, ...tls, ALPNProtocols: ['h2'] })
    const { promise, resolve, reject } = Promise.withResolvers<undefined>()
    const cancel = this.#deps.clock.setTimer(CONNECT_MS, () => reject(new Error('no connection in time')))
    const stopped = (): void => reject(this.#stop.signal.reason as Error)
    this.#stop.signal.addEventListener('abort', stopped, { once: true })
    socket.on('error', reject)
    socket.once('close', () => reject(new Error('the hub has closed the connection')))
    socket.once('secureConnect', () => resolve(undefined))
    try {
      await promise
      return socket
    } catch (error) {
      socket.destroy()
      throw error
    } finally {
      cancel()
      this.#stop.signal.removeEventListener('abort', stopped)
    }
  }

  #ping(session: ClientHttp2Session): () => void {
    let isWaiting = false
    let cancel: () => void
    const next = (): void => {
      cancel = this.#deps.clock.setTimer(PING_MS, () => {
        if (session.destroyed) return
        if (isWaiting) {
          session.destroy(new Error('the hub answers no ping'))
          return
        }
        isWaiting = true
        session.ping((error: Error | null) => {
          if (error === null) isWaiting = false
        })
        next()
      })
    }
    cancel = () => undefined
    next()
    return () => cancel()
  }
}

async function answerOf(stream: ClientHttp2Stream, body?: string): Promise<HubAnswer> {
  const parts: Buffer[] = []
  let octets = 0
  if (body !== undefined) stream.end(body)
  await exchange(stream, (data) => {
    octets += data.length
    if (octets > MAX_LINE) throw new Error(`the answer of the hub has more than ${MAX_LINE} octets`)
    parts.push(data)
  })
  try {
    return JSON.parse(Buffer.concat(parts).toString('utf8')) as HubAnswer
  } catch (cause) {
    throw unavailable('the answer of the hub cannot be read', cause)
  }
}

/** Resolves at the end of an answer with status 200. Throws ClusterApiError for every other end. */
function exchange(stream: ClientHttp2Stream, onData: (data: Buffer) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    let status: number | undefined
    const refusal: Buffer[] = []
    stream.on('response', (headers) => (status = headers[':status']))
    stream.on('data', (data: Buffer) => {
      try {
        if (status === 200) onData(data)
        else if (refusal.length < 64) refusal.push(data)
      } catch (error) {
        reject(unavailable(messageOf(error), error))
        stream.destroy()
      }
    })
    stream.on('error', (error) => reject(unavailable(`the connection to the hub broke: ${messageOf(error)}`, error)))
    stream.on('close', () => reject(unavailable('the connection to the hub broke')))
    stream.on('end', () => {
      if (status === 200) {
        resolve()
        return
      }
      const said = parseRefusal(Buffer.concat(refusal).toString('utf8'))
      if (said === undefined) {
        reject(unavailable(`the hub answers with status ${status ?? 'none'}`))
        return
      }
      reject(new ClusterApiError(said.code, said.message))
    })
  })
}

function unavailable(message: string, cause?: unknown): ClusterApiError {
  return new ClusterApiError('Unavailable', message, cause === undefined ? {} : { cause })
}
