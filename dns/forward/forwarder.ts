/**
 * Asks the upstreams for names that are not ours: one socket with a random port and a random id for each query
 * (RFC 5452), one upstream after the other, UDP first and TCP where an answer was cut and the client can take it.
 * Clients that ask the same at the same time wait for one answer together.
 */
import { randomInt } from 'node:crypto'
import type { Clock } from '../../reconcile/clock.ts'
import type { SocketAddress } from '../config.ts'
import { formatSocketAddress } from '../config.ts'
import type { ForwardResult } from '../metrics.ts'
import { QueryReader, sameQuestion } from '../server/query.ts'
import { exchangeTcp, exchangeUdp } from './upstream.ts'
import { HEADER_LENGTH, MAX_TCP_SIZE, RCODE, type Transport, uint16 } from '../wire.ts'

export interface ForwarderDeps {
  readonly clock: Clock
  readonly onResult: (result: ForwardResult, seconds: number) => void
  /** An upstream did not answer, or said that it cannot; the next one is asked. */
  readonly onFailure: (upstream: string, error: Error) => void
}

export interface ForwarderInit {
  readonly upstreams: readonly SocketAddress[]
  readonly timeoutMs: number
  /** Queries under way at most. */
  readonly maxInFlight: number
}

/** Clients that may wait for one answer, and in all for each query that may be under way. */
const MAX_WAITERS = 1024
const MAX_WAITERS_ON_AVERAGE = 16
const FLAG_TC = 0x02
const CLASS_AND_TYPE_LENGTH = 4
/** Codes that say something about the server, not about the name: another one may know. RFC 1035 section 4.1.1. */
const FAILURE_CODES: ReadonlyMap<number, string> = new Map([
  [RCODE.servFail, 'SERVFAIL'],
  [RCODE.notImp, 'NOTIMP'],
  [RCODE.refused, 'REFUSED'],
])

/** One question to the upstreams, and all who wait for its answer. */
interface Flight {
  readonly answer: Promise<Buffer | undefined>
  waiters: number
}

export class Forwarder {
  readonly #deps: ForwarderDeps
  readonly #init: ForwarderInit
  readonly #reader = new QueryReader()
  /** Queries under way, by our own id and question: one that comes back to us proves a loop. */
  readonly #ownIds = new Set<string>()
  /** By all of the query but its id, letter case aside: equal ones share an answer. */
  readonly #flights = new Map<string, Flight>()
  /** Clients that wait for an answer. */
  #waiting = 0
  /** Index of the upstream that answered last. */
  #preferred = 0

  constructor(deps: ForwarderDeps, init: ForwarderInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Questions under way, not counting those that share an answer. */
  get inFlight(): number {
    return this.#flights.size
  }

  /**
   * Takes a query that QueryReader finds in order. Gives the upstream's answer under the client's own id and letter
   * case, no larger than the client takes; undefined when none came, there is a loop, or too much is under way. Never
   * rejects.
   */
  async forward(query: Buffer, transport: Transport, signal: AbortSignal): Promise<Buffer | undefined> {
    if (this.#reader.read(query) !== 'ok') return undefined
    const { questionEnd, clientSize } = this.#reader
    const question = questionKey(query, questionEnd)
    if (this.#ownIds.has(ownId(uint16(query, 0), question))) return this.#refuse('loop')
    const flight = this.#join({ query, question, questionEnd, transport }, signal)
    if (flight === undefined) return this.#refuse('overloaded')

    const started = this.#deps.clock.monotonic()
    this.#waiting += 1
    flight.waiters += 1
    const answer = await flight.answer
    this.#waiting -= 1
    this.#deps.onResult(answer === undefined ? 'failed' : 'answered', (this.#deps.clock.monotonic() - started) / 1000)
    if (answer === undefined) return undefined
    const maxSize = transport === 'tcp' ? MAX_TCP_SIZE : clientSize
    return restore(Buffer.from(answer), { query, questionEnd, maxSize })
  }

  /** The flight of an equal question, or a new one; undefined when there is no room. */
  #join({ query, question, questionEnd, transport }: Question, signal: AbortSignal): Flight | undefined {
    const { maxInFlight } = this.#init
    if (this.#waiting >= maxInFlight * MAX_WAITERS_ON_AVERAGE) return undefined
    // Flags and EDNS options decide about the answer as well.
    const flags = query.toString('latin1', 2, HEADER_LENGTH)
    const key = `${transport} ${flags}${question}${query.toString('latin1', questionEnd)}`
    const known = this.#flights.get(key)
    if (known !== undefined) return known.waiters < MAX_WAITERS ? known : undefined
    if (this.#flights.size >= maxInFlight) return undefined

    const asked = Buffer.from(query)
    const id = randomInt(0x10000)
    asked.writeUInt16BE(id, 0)
    const own = ownId(id, question)
    this.#ownIds.add(own)
    const answer = this.#askInTurn({ asked, questionEnd, transport }, signal).finally(() => {
      this.#ownIds.delete(own)
      this.#flights.delete(key)
    })
    const flight = { answer, waiters: 0 }
    this.#flights.set(key, flight)
    return flight
  }

  #refuse(result: ForwardResult): Buffer | undefined {
    this.#deps.onResult(result, 0)
    return undefined
  }

  async #askInTurn(request: ForwardRequest, signal: AbortSignal): Promise<Buffer | undefined> {
    const { upstreams } = this.#init
    const first = this.#preferred
    let refusal: Buffer | undefined
    for (let i = 0; i < upstreams.length; i += 1) {
      const index = (first + i) % upstreams.length
      const upstream = upstreams[index]
      if (upstream === undefined) continue
      try {
        const answer = await this.#ask(upstream, request, signal)
        const code = FAILURE_CODES.get((answer[3] ?? 0) & 0x0f)
        if (code === undefined) {
          this.#preferred = index
          return answer
        }
        refusal ??= answer
        this.#deps.onFailure(formatSocketAddress(upstream), new Error(`it answers ${code}`))
      } catch (error) {
        if (!signal.aborted) this.#deps.onFailure(formatSocketAddress(upstream), error as Error)
      }
    }
    // No upstream knows better: the client gets what the first of them said.
    return refusal
  }

  async #ask(
    upstream: SocketAddress,
    { asked, questionEnd, transport }: ForwardRequest,
    signal: AbortSignal,
  ): Promise<Buffer> {
    const exchange = {
      upstream,
      query: asked,
      signal,
      clock: this.#deps.clock,
      timeoutMs: this.#init.timeoutMs,
      // Where there is another one to ask, that is what a lost packet costs; a lone one is asked once more.
      repeats: this.#init.upstreams.length === 1,
      isAnswer: (message: Buffer) => isAnswerTo(asked, questionEnd, message),
    }
    const answer = await exchangeUdp(exchange)
    const isCut = ((answer[2] ?? 0) & FLAG_TC) !== 0
    // A client on UDP sees that the answer was cut, and comes back over TCP itself.
    return isCut && transport === 'tcp' ? exchangeTcp(exchange) : answer
  }
}

interface Question {
  readonly query: Buffer
  /** Name, type and class, in small letters. */
  readonly question: string
  readonly questionEnd: number
  readonly transport: Transport
}

interface ForwardRequest {
  readonly asked: Buffer
  readonly questionEnd: number
  readonly transport: Transport
}

/**
 * Name in small letters, type and class: octets of the two numbers can be letters as well, and are left as they are.
 */
function questionKey(query: Buffer, questionEnd: number): string {
  const nameEnd = questionEnd - CLASS_AND_TYPE_LENGTH
  return query.toString('latin1', HEADER_LENGTH, nameEnd).toLowerCase() + query.toString('latin1', nameEnd, questionEnd)
}

function ownId(id: number, question: string): string {
  return `${id} ${question}`
}

/** Our id, an answer, and our question. Some servers leave the question out of an error. RFC 5452 section 9.1. */
function isAnswerTo(asked: Buffer, questionEnd: number, message: Buffer): boolean {
  if (message.length < HEADER_LENGTH || uint16(message, 0) !== uint16(asked, 0)) return false
  const flags = message[2] ?? 0
  if ((flags & 0x80) === 0 || (flags & 0x78) !== 0) return false
  const isBareError = uint16(message, 4) === 0 && ((message[3] ?? 0) & 0x0f) !== 0 && message.length === HEADER_LENGTH
  return isBareError || sameQuestion(asked, message, questionEnd)
}

interface RestoreInit {
  readonly query: Buffer
  readonly questionEnd: number
  readonly maxSize: number
}

/** Puts the client's id and question back, in place; an answer too large for the client becomes a cut one. */
function restore(answer: Buffer, { query, questionEnd, maxSize }: RestoreInit): Buffer {
  answer.writeUInt16BE(uint16(query, 0), 0)
  if (answer.length < questionEnd) return answer
  query.copy(answer, HEADER_LENGTH, HEADER_LENGTH, questionEnd)
  if (answer.length <= maxSize) return answer
  const cut = Buffer.from(answer.subarray(0, questionEnd))
  cut[2] = (cut[2] ?? 0) | FLAG_TC
  cut.fill(0, 6, HEADER_LENGTH)
  return cut
}
