/**
 * Asks the upstreams for names that are not ours: one socket with a random port and a random id for each query
 * (RFC 5452), one upstream after the other, UDP first and TCP where an answer was cut and the client can take it.
 */
import { randomInt } from 'node:crypto'
import type { Clock } from '../reconcile/clock.ts'
import type { SocketAddress } from './config.ts'
import { formatSocketAddress } from './config.ts'
import type { ForwardResult } from './metrics.ts'
import { HEADER_LENGTH, MAX_TCP_SIZE, QueryReader, sameQuestion, uint16 } from './query.ts'
import type { Transport } from './responder.ts'
import { exchangeTcp, exchangeUdp } from './upstream.ts'

export interface ForwarderDeps {
  readonly clock: Clock
  readonly onResult: (result: ForwardResult, seconds: number) => void
  /** An upstream did not answer; the next one is asked. */
  readonly onFailure: (upstream: string, error: Error) => void
}

export interface ForwarderInit {
  readonly upstreams: readonly SocketAddress[]
  readonly timeoutMs: number
  /** Queries under way at most. */
  readonly maxInFlight: number
}

/** The same question under way this often is a loop through another server, or a flood. */
const MAX_SAME_QUESTION = 64
const FLAG_TC = 0x02

export class Forwarder {
  readonly #deps: ForwarderDeps
  readonly #init: ForwarderInit
  readonly #reader = new QueryReader()
  /** Queries under way, by our own id and question: one that comes back to us proves a loop. */
  readonly #ownIds = new Set<string>()
  readonly #sameQuestion = new Map<string, number>()
  #inFlight = 0
  /** Index of the upstream that answered last. */
  #preferred = 0

  constructor(deps: ForwarderDeps, init: ForwarderInit) {
    this.#deps = deps
    this.#init = init
  }

  get inFlight(): number {
    return this.#inFlight
  }

  /**
   * Takes a query that QueryReader finds in order. Gives the upstream's answer under the client's own id and letter
   * case, no larger than the client takes; undefined when none came, there is a loop, or too much is under way. Never
   * rejects.
   */
  async forward(query: Buffer, transport: Transport, signal: AbortSignal): Promise<Buffer | undefined> {
    if (this.#reader.read(query) !== 'ok') return undefined
    const { questionEnd, clientSize } = this.#reader
    const question = query.toString('latin1', HEADER_LENGTH, questionEnd).toLowerCase()
    const same = this.#sameQuestion.get(question) ?? 0
    if (same >= MAX_SAME_QUESTION || this.#ownIds.has(ownId(uint16(query, 0), question))) return this.#refuse('loop')
    if (this.#inFlight >= this.#init.maxInFlight) return this.#refuse('overloaded')

    const started = this.#deps.clock.monotonic()
    const asked = Buffer.from(query)
    const id = randomInt(0x10000)
    asked.writeUInt16BE(id, 0)
    this.#enter(ownId(id, question), question)
    try {
      const answer = await this.#askInTurn({ asked, questionEnd, transport }, signal)
      this.#deps.onResult(answer === undefined ? 'failed' : 'answered', (this.#deps.clock.monotonic() - started) / 1000)
      if (answer === undefined) return undefined
      return restore(answer, { query, questionEnd, maxSize: transport === 'tcp' ? MAX_TCP_SIZE : clientSize })
    } finally {
      this.#leave(ownId(id, question), question)
    }
  }

  #enter(own: string, question: string): void {
    this.#inFlight += 1
    this.#ownIds.add(own)
    this.#sameQuestion.set(question, (this.#sameQuestion.get(question) ?? 0) + 1)
  }

  #leave(own: string, question: string): void {
    this.#inFlight -= 1
    this.#ownIds.delete(own)
    const left = (this.#sameQuestion.get(question) ?? 1) - 1
    if (left === 0) this.#sameQuestion.delete(question)
    else this.#sameQuestion.set(question, left)
  }

  #refuse(result: ForwardResult): Buffer | undefined {
    this.#deps.onResult(result, 0)
    return undefined
  }

  async #askInTurn(request: ForwardRequest, signal: AbortSignal): Promise<Buffer | undefined> {
    const { upstreams } = this.#init
    const first = this.#preferred
    for (let i = 0; i < upstreams.length; i += 1) {
      const index = (first + i) % upstreams.length
      const upstream = upstreams[index]
      if (upstream === undefined) continue
      try {
        const answer = await this.#ask(upstream, request, signal)
        this.#preferred = index
        return answer
      } catch (error) {
        if (!signal.aborted) this.#deps.onFailure(formatSocketAddress(upstream), error as Error)
      }
    }
    return undefined
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
      isAnswer: (message: Buffer) => isAnswerTo(asked, questionEnd, message),
    }
    const answer = await exchangeUdp(exchange)
    const isCut = ((answer[2] ?? 0) & FLAG_TC) !== 0
    // A client on UDP is told that the answer was cut, and comes back over TCP itself.
    return isCut && transport === 'tcp' ? exchangeTcp(exchange) : answer
  }
}

interface ForwardRequest {
  readonly asked: Buffer
  readonly questionEnd: number
  readonly transport: Transport
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

/** Puts the client's id and question back; an answer too large for the client becomes a cut one. */
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
