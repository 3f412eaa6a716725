/**
 * Answers with what another console says: the page of a console in a cluster, on the loopback of the person who looks.
 * The headers of security are those of this server, and a path leads nowhere but to that console.
 */
import type { ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { messageOf } from '../../runtime/runtime.ts'

export interface ForwardedAnswer {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly body: Readable
}

/** Asks the other console. `path` includes the query. Rejects if there is no answer. */
export type Forward = (path: string, signal: AbortSignal) => Promise<ForwardedAnswer>

/** No segment begins with a dot, and nothing is escaped: no server between may read it as another path. */
const PATH = /^\/(?:[\w-][\w.-]*(?:\/[\w-][\w.-]*)*)?$/
const TYPES = /^(?:text\/(?:html|javascript|css|plain)|image\/svg\+xml|application\/json|text\/event-stream)(?:;|$)/
const TEXT = 'text/plain; charset=utf-8'
const STATUSES: ReadonlySet<number> = new Set([200, 400, 404, 429, 502, 503, 504])

export class Forwarder {
  readonly #forward: Forward
  readonly #most: number
  #open = 0

  /** `clients`: how many answers may be under way. */
  constructor(forward: Forward, { clients }: { readonly clients: number }) {
    this.#forward = forward
    this.#most = clients
  }

  /** Rejects if the client or the other console ends an answer in its middle. */
  async answer(url: string, response: ServerResponse, signal: AbortSignal): Promise<void> {
    const [path = '', query] = url.split('?', 2)
    if (!PATH.test(path)) {
      say(response, 404, 'no such page\n')
      return
    }
    if (this.#open >= this.#most) {
      say(response, 503, `${this.#most} answers are under way already: close a page\n`, { 'retry-after': '10' })
      return
    }
    this.#open += 1
    try {
      // A query means something to an explanation alone.
      await this.#pass(query !== undefined && path === '/api/explain' ? `${path}?${query}` : path, response, signal)
    } finally {
      this.#open -= 1
    }
  }

  async #pass(path: string, response: ServerResponse, signal: AbortSignal): Promise<void> {
    let answer: ForwardedAnswer
    try {
      answer = await this.#forward(path, signal)
    } catch (error) {
      if (response.headersSent || signal.aborted) return
      say(response, 502, `${messageOf(error)}\n`)
      return
    }
    const { status, headers, body } = answer
    const type = headers['content-type']
    const retry = headers['retry-after']
    response.writeHead(STATUSES.has(status) ? status : 502, {
      'content-type': typeof type === 'string' && TYPES.test(type) ? type : TEXT,
      ...(typeof retry === 'string' && /^\d{1,4}$/.test(retry) ? { 'retry-after': retry } : {}),
    })
    // A stream may say nothing for a while, and the page waits for its beginning.
    response.flushHeaders()
    await pipeline(body, response, { signal })
  }
}

function say(response: ServerResponse, code: number, text: string, headers: Readonly<Record<string, string>> = {}) {
  response.writeHead(code, { 'content-type': TEXT, ...headers })
  response.end(text)
}
