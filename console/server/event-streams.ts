/**
 * Server-sent events of all open pages: each gets the sections that have changed since it last got any. A page that does
 * not read holds what it was sent last and nothing else; after a while it is dropped.
 */
import type { ServerResponse } from 'node:http'
import type { Clock } from '../../reconcile/reconcile.ts'
import { type ConsoleState, SECTIONS, type SectionName } from '../state/state.ts'

export interface StreamLimits {
  readonly clients: number
  /** The least time between two sendings to all. */
  readonly everyMs: number
  /** How often a page hears that the server lives. */
  readonly beatMs: number
  /** How long a client may leave unread what it was sent. */
  readonly unreadMs: number
}

interface Client {
  readonly response: ServerResponse
  /** The text of each section that it has. */
  readonly has: Map<SectionName, string>
  /** Set while it has not read: since when, by the monotonic clock. */
  unreadSince?: number
}

export class EventStreams {
  readonly #clock: Clock
  readonly #limits: StreamLimits
  readonly #clients = new Map<ServerResponse, Client>()
  #state: ConsoleState | undefined
  /** The text of each section as of its last sending. A text takes long to make, so that none is made in between. */
  readonly #texts = new Map<SectionName, { readonly of: unknown; readonly text: string }>()
  #sentAt = -Infinity
  #cancelLater: (() => void) | undefined
  #cancelBeat: (() => void) | undefined

  constructor(clock: Clock, limits: StreamLimits) {
    this.#clock = clock
    this.#limits = limits
  }

  get size(): number {
    return this.#clients.size
  }

  /** False if there are too many clients: then the caller answers. */
  add(response: ServerResponse): boolean {
    if (this.#clients.size >= this.#limits.clients) return false
    const client: Client = { response, has: new Map() }
    this.#clients.set(response, client)
    response.once('close', () => this.#clients.delete(response))
    // Whoever writes to a client that has gone must not end the process.
    response.on('error', () => undefined)
    response.writeHead(200, { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' })
    response.flushHeaders()
    this.#send(client)
    this.#cancelBeat ??= this.#clock.setTimer(this.#limits.beatMs, () => this.#beat())
    return true
  }

  /** Ends a stream after what was sent. A client that does not read that is dropped. */
  end(response: ServerResponse): void {
    if (!this.#clients.delete(response)) return
    response.end()
    response.once(
      'close',
      this.#clock.setTimer(this.#limits.unreadMs, () => response.destroy()),
    )
  }

  publish(state: ConsoleState): void {
    this.#state = state
    if (this.#cancelLater !== undefined) return
    const waitMs = this.#sentAt + this.#limits.everyMs - this.#clock.monotonic()
    if (waitMs <= 0) this.#sendAll()
    else this.#cancelLater = this.#clock.setTimer(waitMs, () => this.#sendAll())
  }

  close(): void {
    this.#cancelLater?.()
    this.#cancelBeat?.()
    for (const response of this.#clients.keys()) response.destroy()
  }

  #sendAll(): void {
    this.#cancelLater = undefined
    this.#sentAt = this.#clock.monotonic()
    for (const client of this.#clients.values()) this.#send(client)
  }

  #send(client: Client): void {
    const state = this.#state
    if (client.unreadSince !== undefined || state === undefined) return
    const texts = SECTIONS.map((name) => [name, this.#textOf(state, name)] as const)
    const changed = texts.filter(([name, text]) => client.has.get(name) !== text)
    if (changed.length === 0) return
    for (const [name, text] of changed) client.has.set(name, text)
    const body = changed.map(([name, text]) => `"${name}":${text}`).join(',')
    this.#write(client, `event: sections\ndata: {${body}}\n\n`)
  }

  /** A state never changes: the same object has the same text. */
  #textOf(state: ConsoleState, name: SectionName): string {
    const known = this.#texts.get(name)
    const of = state[name]
    if (known !== undefined && known.of === of) return known.text
    const text = JSON.stringify(of)
    this.#texts.set(name, { of, text })
    return text
  }

  #write(client: Client, text: string): void {
    if (client.response.write(text)) return
    client.unreadSince = this.#clock.monotonic()
    client.response.once('drain', () => {
      delete client.unreadSince
      if (this.#clients.has(client.response)) this.#send(client)
    })
  }

  #beat(): void {
    const now = this.#clock.monotonic()
    for (const client of this.#clients.values()) {
      if (client.unreadSince === undefined) this.#write(client, `event: beat\ndata: {}\n\n`)
      else if (now - client.unreadSince >= this.#limits.unreadMs) client.response.destroy()
    }
    this.#cancelBeat =
      this.#clients.size === 0 ? undefined : this.#clock.setTimer(this.#limits.beatMs, () => this.#beat())
  }
}
