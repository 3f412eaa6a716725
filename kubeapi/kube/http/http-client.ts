/**
 * HTTP requests for the code above: limited in number, time and size, retried where that helps. A failure is a
 * KubeError with the request and the server's message.
 */
import { type Readable, addAbortSignal } from 'node:stream'
import { Backoff, type Clock, abortReason } from '../../../reconcile/reconcile.ts'
import { type RequestLine, KubeError, errorFromAnswer, errorFromConnection, noAnswer } from '../kube-error.ts'
import type { KubeMetrics } from '../metrics.ts'
import type { Answer, Exchange, ServerConnection } from './server-connection.ts'
import type { Refusals } from './refusals.ts'

export interface HttpClientDeps {
  readonly clock: Clock
  readonly connection: ServerConnection
  readonly metrics: KubeMetrics
  /** Receives the result of each request. */
  readonly refusals: Pick<Refusals, 'failed' | 'succeeded'>
  /** Origin and path of the server, for messages. */
  readonly server: string
}

export interface HttpRequest extends RequestLine {
  readonly method: Exchange['method']
  readonly path: string
  /** The path of the object that the request creates; `path` is its collection. */
  readonly creates?: string
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>
  /** Sent as JSON. */
  readonly body?: unknown
  /** Default application/json. */
  readonly contentType?: string
  /** Default application/json. */
  readonly accept?: string
  /** Further headers of the request. */
  readonly headers?: Readonly<Record<string, string>>
  /** False for a request that must not be repeated. Default true. */
  readonly again?: boolean
  readonly timeoutMs?: number
  /** Limit of the answer in bytes; a larger one is a KubeError with reason `TooLarge`. */
  readonly maxBytes?: number
}

export interface Reply<T> {
  readonly status: number
  readonly body: T
}

/** Concurrent requests, not counting watches. */
const MAX_UNDER_WAY = 16
/** For one attempt, from the request to the last byte of the answer. */
const TIMEOUT_MS = 10_000
const MAX_TRIES = 4
/** A server may request a longer pause; the caller has its own retry loop for that. */
const MAX_REST_MS = 5000
const MAX_BYTES = 16 << 20

export class HttpClient {
  readonly #deps: HttpClientDeps
  readonly #turns: (() => void)[] = []
  #underWay = 0

  constructor(deps: HttpClientDeps) {
    this.#deps = deps
  }

  /** Whether the connection itself detects a peer that no longer answers. */
  get pinged(): boolean {
    return this.#deps.connection.pinged
  }

  /** Throws KubeError, or the signal's reason. */
  ask<T>(question: HttpRequest, signal: AbortSignal): Promise<Reply<T>> {
    return this.#noted(question, () => this.#again<T>(question, signal))
  }

  async #again<T>(question: HttpRequest, signal: AbortSignal): Promise<Reply<T>> {
    const backoff = new Backoff(this.#deps.clock, { minMs: 100, maxMs: 2000 })
    let renewed = false
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#once<T>(question, signal)
      } catch (error) {
        if (signal.aborted) throw abortReason(signal)
        if (!(error instanceof KubeError)) throw error
        if (error.status === 401 && error.reason !== 'NoLogin' && !renewed) {
          renewed = true
          this.#deps.connection.renew()
          continue
        }
        // With 429 the server has not executed the request.
        const harmless = question.again !== false || error.status === 429
        if (!error.passing || !harmless || tries >= MAX_TRIES) throw error
        if (error.reason === 'NoAnswer' && tries >= 2) throw error
        await this.#deps.clock.sleep(Math.min(error.retryAfterMs ?? backoff.next(), MAX_REST_MS), signal)
      }
    }
  }

  /** Sends the request once; the caller reads the answer's body. Throws KubeError unless the status is a success. */
  open(question: HttpRequest, signal: AbortSignal): Promise<Answer> {
    return this.#noted(question, () => this.#open(question, signal))
  }

  /**
   * Like open(), but an answer for which `isOurs` is true is given to the caller whatever its status: behind the API
   * server's proxy, another server answers.
   */
  relay(question: HttpRequest, isOurs: (answer: Answer) => boolean, signal: AbortSignal): Promise<Answer> {
    return this.#noted(question, () => this.#open(question, signal, isOurs))
  }

  async #open(question: HttpRequest, signal: AbortSignal, isOurs?: (answer: Answer) => boolean): Promise<Answer> {
    const answer = await this.#within(question, signal, (limited) => this.#send(question, limited))
    if (answer.status < 300 || isOurs?.(answer) === true) return answer
    const body = await this.#within(question, signal, (limited) =>
      // The request's own signal has no limit any more: the body of a watch may take as long as it likes.
      readJson(addAbortSignal(limited, answer.body), MAX_BYTES),
    )
    if (answer.status === 401) this.#deps.connection.renew()
    throw errorFromAnswer(question, answer.status, body)
  }

  async #noted<T>(question: HttpRequest, run: () => Promise<T>): Promise<T> {
    const { refusals } = this.#deps
    try {
      const result = await run()
      refusals.succeeded(question)
      return result
    } catch (error) {
      refusals.failed(question, error)
      throw error
    }
  }

  async #once<T>(question: HttpRequest, signal: AbortSignal): Promise<Reply<T>> {
    await this.#turn(signal)
    try {
      return await this.#within(question, signal, async (limited) => {
        const { status, headers, body } = await this.#send(question, limited)
        const read = await readJson(body, question.maxBytes ?? MAX_BYTES)
        const retryAfter = headers['retry-after']
        if (read === TOO_LARGE) throw tooLarge(question)
        if (status >= 300) {
          throw errorFromAnswer(question, status, read, typeof retryAfter === 'string' ? retryAfter : undefined)
        }
        return { status, body: read as T }
      })
    } finally {
      this.#giveTurn()
    }
  }

  async #send(question: HttpRequest, signal: AbortSignal): Promise<Answer> {
    const { method, path, query = {}, body, contentType = 'application/json', accept, headers, verb } = question
    const parameters = Object.entries(query).flatMap(([name, value]) =>
      value === undefined ? [] : [`${name}=${encodeURIComponent(value)}`],
    )
    const exchange: Exchange = {
      method,
      path: parameters.length === 0 ? path : `${path}?${parameters.join('&')}`,
      headers: {
        ...(body === undefined ? {} : { 'content-type': contentType }),
        ...(accept && { accept }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    }
    let status = 'none'
    try {
      const answer = await this.#deps.connection.send(exchange, signal)
      status = String(answer.status)
      return answer
    } finally {
      this.#deps.metrics.requests.inc({ verb, status })
    }
  }

  /** Runs with a signal that aborts after the request's timeout, unless `run` has ended by then. */
  async #within<T>(question: HttpRequest, signal: AbortSignal, run: (limited: AbortSignal) => Promise<T>): Promise<T> {
    const ms = question.timeoutMs ?? TIMEOUT_MS
    const late = new AbortController()
    const cancel = this.#deps.clock.setTimer(ms, () => late.abort(noAnswer(question, this.#deps.server, ms)))
    try {
      return await run(AbortSignal.any([signal, late.signal]))
    } catch (error) {
      if (signal.aborted) throw abortReason(signal)
      if (late.signal.aborted) throw abortReason(late.signal)
      throw errorFromConnection(question, this.#deps.server, error)
    } finally {
      cancel()
    }
  }

  async #turn(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted()
    if (this.#underWay < MAX_UNDER_WAY) {
      this.#underWay += 1
      return
    }
    await new Promise<void>((resolve, reject) => {
      const onAbort = (): void => {
        const at = this.#turns.indexOf(turn)
        if (at >= 0) this.#turns.splice(at, 1)
        reject(abortReason(signal))
      }
      const turn = (): void => {
        signal.removeEventListener('abort', onAbort)
        resolve()
      }
      this.#turns.push(turn)
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }

  /** The slot goes to the next waiting request, or becomes free. */
  #giveTurn(): void {
    const next = this.#turns.shift()
    if (next === undefined) this.#underWay -= 1
    else next()
  }
}

const TOO_LARGE = Symbol('too large')

function tooLarge(asked: RequestLine): KubeError {
  return new KubeError(`${asked.verb} ${asked.title}: the answer exceeds the size limit`, {
    code: 'Unavailable',
    status: 0,
    reason: 'TooLarge',
  })
}

/** Returns the body as JSON, or as text if it is not JSON; TOO_LARGE if it exceeds the limit. */
async function readJson(body: Readable, maxBytes: number): Promise<unknown> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body as AsyncIterable<Buffer>) {
    size += chunk.length
    if (size > maxBytes) return TOO_LARGE
    chunks.push(chunk)
  }
  const text = Buffer.concat(chunks).toString()
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
