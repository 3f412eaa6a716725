/**
 * One HTTP/2 connection. It is pinged (RFC 9113 section 6.7), so that a peer that is gone without a word, or a box in
 * between that forgot the connection, is noticed within PING_EVERY_MS + PONG_WITHIN_MS = 20 s: all that is under way
 * fails, and the next request opens another.
 */
import { type ClientHttp2Session, type ClientHttp2Stream, connect, constants } from 'node:http2'
import type { Duplex } from 'node:stream'
import type { Clock } from '../../../reconcile/clock.ts'
import type { Answer, Exchange } from './plain-requests.ts'

const PING_EVERY_MS = 10_000
const PONG_WITHIN_MS = 10_000
/** Bytes that the server may send ahead, on one stream and on all: what memory this connection can take. */
const STREAM_WINDOW = 1 << 20
const SESSION_WINDOW = 4 << 20

export interface PingedSessionInit {
  readonly origin: string
  readonly socket: Duplex
}

export class KeepaliveConnection {
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
    // What is under way fails by itself, and says why.
    this.#session.on('error', () => undefined)
    this.#session.once('close', () => this.#cancelTimer?.())
    this.#schedulePing()
  }

  /** False once the server said that it takes no more (GOAWAY), or the connection is gone. */
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

  /** Takes nothing more and ends when what is under way has ended. */
  retire(): void {
    this.#session.close()
  }

  /** Ends everything at once. */
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
        // The connection ended meanwhile.
        late()
      }
    })
  }
}

function closedEarly(stream: ClientHttp2Stream): Error {
  return new Error(`the server ended the request without an answer (HTTP/2 code ${stream.rstCode})`)
}
