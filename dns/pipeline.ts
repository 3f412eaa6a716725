/**
 * From packet to answer: answer() is the whole way, and every socket calls it for every query. It knows no socket; the
 * sockets send what it gives.
 */
import { parseDnsName } from '../model/dns/dns-name.ts'
import { CLUSTERSET_ZONE } from '../model/spec-constants.ts'
import type { Clock } from '../reconcile/clock.ts'
import type { Logger } from '../runtime/logging/logger.ts'
import type { Forwarder } from './forward/forwarder.ts'
import type { DnsMetrics } from './metrics.ts'
import { QueryReader, questionName } from './server/query.ts'
import { writeAnswer, writeCode } from './server/write-response.ts'
import { answer as answerOf, isTransfer } from './zone/answer.ts'
import { type CompiledAnswer, compileAnswer } from './zone/compile.ts'
import { KeptAnswers } from './zone/kept-answers.ts'
import type { ServiceIndex } from './zone/service-index.ts'
import { MAX_TCP_SIZE, MAX_UDP_SIZE, RCODE, type Transport } from './wire.ts'

export interface PipelineDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly logger: Pick<Logger, 'error'>
  readonly metrics: Pick<DnsMetrics, 'answered' | 'dropped' | 'took'>
  readonly index: ServiceIndex
  /** Undefined: names outside the zone are REFUSED. */
  readonly forwarder: Pick<Forwarder, 'forward' | 'inFlight'> | undefined
  /** Ends what is under way to the upstreams. */
  readonly signal: AbortSignal
}

/** Bytes to send back, at once or when an upstream has answered; undefined: say nothing. A promise never rejects. */
export type Reply = Buffer | undefined | Promise<Buffer | undefined>

/** What a query comes to: the bytes behind its question, a response code alone, no answer, or the upstreams' answer. */
type Finding = CompiledAnswer | Exclude<keyof typeof RCODE, 'noError'> | 'ignored' | 'forward'

/** One packet in 64 is timed: reading the clock twice is dear beside a kept answer. */
const SAMPLE_MASK = 63
const ROTATION_MASK = 0xffff
const NOT_TIMED = -1
const FLAG_RD = 0x01
/**
 * A name of ours with a search domain behind it, such as `web.shop.svc.clusterset.local.shop.svc.cluster.local.`: no
 * such name, at once. Clients with musl wait for seconds on any other refusal, and an upstream may be slow or have a
 * wildcard.
 */
const INSIDE_ANOTHER_NAME = `.${CLUSTERSET_ZONE}.`

export class Pipeline {
  readonly #deps: PipelineDeps
  readonly #metrics: PipelineDeps['metrics']
  readonly #index: ServiceIndex
  readonly #kept: KeptAnswers
  readonly #recursion: boolean
  /** Holds what was read of the query that is being answered. */
  readonly #reader = new QueryReader()
  #isRehearsing = false
  #packets = 0
  #rotation = 0

  constructor(deps: PipelineDeps) {
    this.#deps = deps
    this.#metrics = deps.metrics
    this.#index = deps.index
    this.#kept = new KeptAnswers(deps.index)
    this.#recursion = deps.forwarder !== undefined
  }

  /** Number of answers kept ready. */
  get kept(): number {
    return this.#kept.size
  }

  /** Questions to the upstreams that are under way. */
  get underWay(): number {
    return this.#deps.forwarder?.inFlight ?? 0
  }

  /**
   * Answers one query. The answer is no larger than the transport and the client allow. Never throws; `query` is not
   * used any more when this has returned.
   */
  answer(query: Buffer, transport: Transport): Reply {
    const started = this.#startOfSample()
    try {
      // Read: header, question and EDNS. What is not in order ends here.
      const outcome = this.#reader.read(query)
      // Find: bytes made before, by the question's own octets; else they are worked out, and kept.
      const finding: Finding =
        outcome === 'ok' ? (this.#kept.find(query, this.#reader) ?? this.#workOut(query)) : outcome
      // Write: the client's header and question, the bytes, EDNS, cut to what the client takes.
      const reply =
        typeof finding === 'object' ? this.#write(query, finding, transport) : this.#writeCode(query, finding)
      if (started !== NOT_TIMED) this.#metrics.took((this.#deps.clock.monotonic() - started) / 1000)
      // Forward: what is not ours is asked elsewhere, and answered when the upstream has answered.
      return reply ?? (finding === 'forward' ? this.#forward(Buffer.from(query), transport) : undefined)
    } catch (error) {
      // A fault of ours. The client gets SERVFAIL, and everyone else is still answered.
      this.#deps.logger.error('cannot answer a query', {
        reason: 'InternalError',
        why: String(error),
        query: query.toString('hex', 0, 300),
      })
      return this.#servFail(query)
    }
  }

  /** Answers a query for a name of the zone, for nobody: what can be kept is kept, and nothing is counted. */
  rehearse(query: Buffer): void {
    this.#isRehearsing = true
    void this.answer(query, 'udp')
    this.#isRehearsing = false
  }

  /** For a question of class IN that has no answer ready. */
  #workOut(query: Buffer): Finding {
    const { type, questionEnd } = this.#reader
    const text = questionName(query)
    const name = parseDnsName(text)
    if (name.kind === 'malformed') return 'formErr'
    if (name.kind === 'notOurs') {
      if (text.includes(INSIDE_ANOTHER_NAME)) return 'nxDomain'
      // Only a client that asks for recursion is forwarded. RFC 1035 section 4.1.1.
      return this.#recursion && ((query[2] ?? 0) & FLAG_RD) !== 0 ? 'forward' : 'refused'
    }
    if (isTransfer(type)) return 'refused'
    const result = answerOf(this.#index, { name, type }, 0)
    if (result.kind === 'servFail') return 'servFail'
    if (result.kind === 'nxDomain') return this.#kept.absence(questionEnd)
    const compiled = compileAnswer(result, text, questionEnd)
    this.#kept.keep(query, this.#reader, name, compiled)
    return compiled
  }

  #write(query: Buffer, compiled: CompiledAnswer, transport: Transport): Buffer {
    const reader = this.#reader
    const maxSize = transport === 'tcp' ? MAX_TCP_SIZE : Math.min(reader.clientSize, MAX_UDP_SIZE)
    this.#rotation = (this.#rotation + 1) & ROTATION_MASK
    if (!this.#isRehearsing) this.#metrics.answered(reader.type, compiled.rcode)
    return writeAnswer(query, reader, compiled, {
      maxSize,
      rotation: this.#rotation,
      serial: this.#index.serial,
      recursion: this.#recursion,
    })
  }

  #writeCode(query: Buffer, finding: Exclude<Finding, CompiledAnswer>): Buffer | undefined {
    if (finding === 'forward') return undefined
    if (finding === 'ignored') {
      if (!this.#isRehearsing) this.#metrics.dropped('not_a_query')
      return undefined
    }
    const rcode = RCODE[finding]
    if (!this.#isRehearsing) this.#metrics.answered(this.#reader.type, rcode)
    return writeCode(query, this.#reader, rcode, this.#recursion)
  }

  async #forward(query: Buffer, transport: Transport): Promise<Buffer | undefined> {
    const { forwarder, signal } = this.#deps
    return (await forwarder?.forward(query, transport, signal)) ?? this.#servFail(query)
  }

  /** Reads the query again: others were read meanwhile. */
  #servFail(query: Buffer): Buffer | undefined {
    return this.#reader.read(query) === 'ok' ? this.#writeCode(query, 'servFail') : undefined
  }

  /** Milliseconds, or NOT_TIMED. */
  #startOfSample(): number {
    this.#packets = (this.#packets + 1) & SAMPLE_MASK
    return this.#packets === 0 && !this.#isRehearsing ? this.#deps.clock.monotonic() : NOT_TIMED
  }
}
