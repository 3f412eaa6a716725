/**
 * From packet to answer: answer() is the whole path, and every socket calls it for every query. It knows no sockets;
 * the sockets send what it returns.
 */
import { CLUSTERSET_ZONE, parseDnsName } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type Client, ResponseLimit } from '../clients/clients.ts'
import type { DnsMetrics, NotForwarded } from '../config/config.ts'
import type { Forwarder } from '../forward/forward.ts'
import {
  type CompiledAnswer,
  MAX_TCP_SIZE,
  MAX_UDP_SIZE,
  QueryReader,
  RCODE,
  type Transport,
  cutAnswer,
  extendedError,
  questionName,
  writeAnswer,
  writeCode,
} from '../message/message.ts'
import { type KeptAnswers, type ServiceIndex, answer as answerOf, compileAnswer, isTransfer } from '../zone/zone.ts'

export interface PipelineDeps {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly logger: Pick<Logger, 'error'>
  readonly metrics: Pick<DnsMetrics, 'answered' | 'cut' | 'dropped' | 'forwarded'>
  readonly index: ServiceIndex
  /** Answers of the index that were computed before. */
  readonly kept: KeptAnswers
  /** If undefined, names outside the zone are REFUSED. */
  readonly forwarder: Pick<Forwarder, 'forward' | 'inFlight'> | undefined
  /** Aborts queries to the upstreams. */
  readonly signal: AbortSignal
}

/** The answer, now or when an upstream has answered. Undefined: send nothing. A promise never rejects. */
export type Reply = Buffer | undefined | Promise<Buffer | undefined>

/** The result for a query: the bytes after its question, a response code alone, no answer, or forwarding. */
type Finding = CompiledAnswer | Exclude<keyof typeof RCODE, 'noError'> | 'ignored' | 'forward' | 'notOwn'

const ROTATION_MASK = 0xffff
const FLAG_RD = 0x01
/**
 * A name of ours followed by a search domain, such as `web.shop.svc.clusterset.local.shop.svc.cluster.local.`, gets
 * NXDOMAIN at once. Clients with musl wait for seconds on any other refusal, and an upstream may be slow or have a
 * wildcard.
 */
const INSIDE_ANOTHER_NAME = `.${CLUSTERSET_ZONE}.`

/**
 * RFC 8914 section 4: 18 (Prohibited) if the client may not ask this, 0 (Other Error) for causes without their own
 * code.
 */
const PROHIBITED = 18
const OTHER_ERROR = 0
/** The EDNS text beside the response code: the reason as listed in docs/troubleshooting.md. */
const WHY_NOT: Readonly<Record<NotForwarded, Buffer>> = {
  client_not_own: extendedError(PROHIBITED, 'client_not_own'),
  client_places: extendedError(OTHER_ERROR, 'client_places'),
  client_rate: extendedError(OTHER_ERROR, 'client_rate'),
  overloaded: extendedError(OTHER_ERROR, 'overloaded'),
  loop: extendedError(OTHER_ERROR, 'loop'),
}

interface Asker {
  readonly transport: Transport
  readonly client: Client
}

interface Refusal {
  readonly code: Exclude<keyof typeof RCODE, 'noError'>
  readonly client: Client
  /** An EDNS option. */
  readonly why?: Buffer
}

export class Pipeline {
  readonly #deps: PipelineDeps
  readonly #metrics: PipelineDeps['metrics']
  readonly #index: ServiceIndex
  readonly #kept: KeptAnswers
  readonly #recursion: boolean
  /** Holds the parsed fields of the query that is being answered. */
  readonly #reader = new QueryReader()
  readonly #limit = new ResponseLimit()
  #rotation = 0

  constructor(deps: PipelineDeps) {
    this.#deps = deps
    this.#metrics = deps.metrics
    this.#index = deps.index
    this.#kept = deps.kept
    this.#recursion = deps.forwarder !== undefined
  }

  /** Number of answers that are kept. */
  get kept(): number {
    return this.#kept.size
  }

  /** Number of concurrent queries to the upstreams. */
  get underWay(): number {
    return this.#deps.forwarder?.inFlight ?? 0
  }

  /**
   * Answers one query. The answer is no larger than the transport and the client allow. Never throws, and does not use
   * `query` after it returns.
   */
  answer(query: Buffer, transport: Transport, client: Client): Reply {
    try {
      // Read: header, question and EDNS. Malformed queries end here.
      const outcome = this.#reader.read(query)
      // Find: bytes kept for the same question. Otherwise they are computed, and kept.
      const finding: Finding =
        outcome === 'ok' ? (this.#kept.find(query, this.#reader) ?? this.#workOut(query, client)) : outcome
      // Write: the client's header and question, the bytes and EDNS, truncated to what the client accepts.
      const reply =
        typeof finding === 'object'
          ? this.#write(query, finding, { transport, client })
          : this.#writeCode(query, finding, client)
      // Limit: clients of other sites get a limited number of answers over UDP, where the source may be forged.
      if (reply !== undefined) return client.isOwn || transport === 'tcp' ? reply : this.#limited(reply, client)
      // Forward: queries for other names go to an upstream, and are answered when it has answered.
      return finding === 'forward' ? this.#forward(Buffer.from(query), transport, client) : undefined
    } catch (error) {
      // This is an error in the server. The client gets SERVFAIL, and other clients are still answered.
      this.#deps.logger.error('cannot answer a query', {
        reason: 'InternalError',
        why: String(error),
        query: query.toString('hex', 0, 300),
      })
      return this.#servFail(query, client)
    }
  }

  /** Computes the answer to a question of class IN that has none kept. */
  #workOut(query: Buffer, client: Client): Finding {
    const { type, questionEnd } = this.#reader
    const text = questionName(query)
    const name = parseDnsName(text)
    if (name.kind === 'malformed') return 'formErr'
    if (name.kind === 'notOurs') {
      if (text.includes(INSIDE_ANOTHER_NAME)) return 'nxDomain'
      // Queries are forwarded only if the client asks for recursion. RFC 1035 section 4.1.1.
      if (!this.#recursion || ((query[2] ?? 0) & FLAG_RD) === 0) return 'refused'
      return client.isOwn ? 'forward' : 'notOwn'
    }
    if (isTransfer(type)) return 'refused'
    const result = answerOf(this.#index, { name, type }, 0)
    if (result.kind === 'servFail') return 'servFail'
    if (result.kind === 'nxDomain') return this.#kept.absence(questionEnd)
    const compiled = compileAnswer(result, text, questionEnd)
    this.#kept.keep(query, this.#reader, name, compiled)
    return compiled
  }

  #write(query: Buffer, compiled: CompiledAnswer, { transport, client }: Asker): Buffer {
    const reader = this.#reader
    const maxSize = transport === 'tcp' ? MAX_TCP_SIZE : Math.min(reader.clientSize, MAX_UDP_SIZE)
    this.#rotation = (this.#rotation + 1) & ROTATION_MASK
    this.#metrics.answered(reader.type, compiled.rcode)
    return writeAnswer(query, reader, compiled, {
      maxSize,
      rotation: this.#rotation,
      serial: this.#index.serial,
      recursion: this.#recursion && client.isOwn,
    })
  }

  #writeCode(query: Buffer, finding: Exclude<Finding, CompiledAnswer>, client: Client): Buffer | undefined {
    if (finding === 'forward') return undefined
    if (finding === 'ignored') {
      this.#metrics.dropped('not_a_query')
      return undefined
    }
    if (finding === 'notOwn') {
      this.#metrics.forwarded('client_not_own', 0)
      return this.#writeRefusal(query, { code: 'refused', why: WHY_NOT.client_not_own, client })
    }
    return this.#writeRefusal(query, { code: finding, client })
  }

  #writeRefusal(query: Buffer, { code, why, client }: Refusal): Buffer {
    const rcode = RCODE[code]
    this.#metrics.answered(this.#reader.type, rcode)
    const recursion = this.#recursion && client.isOwn
    return writeCode(query, this.#reader, why === undefined ? { rcode, recursion } : { rcode, recursion, why })
  }

  /** Limits an answer to the query that the reader has parsed. */
  #limited(reply: Buffer, client: Client): Buffer | undefined {
    const finding = this.#limit.admit(reply, this.#reader.questionEnd, client, this.#deps.clock.monotonic())
    if (finding === 'send') return reply
    if (finding === 'cut') {
      this.#metrics.cut()
      return cutAnswer(reply, this.#reader)
    }
    this.#metrics.dropped('response_rate')
    return undefined
  }

  async #forward(query: Buffer, transport: Transport, client: Client): Promise<Buffer | undefined> {
    const { forwarder, signal } = this.#deps
    const said = await forwarder?.forward(query, { transport, client: client.key }, signal)
    if (Buffer.isBuffer(said)) return said
    return this.#servFail(query, client, said === undefined ? undefined : WHY_NOT[said])
  }

  /** Parses the query again, because the reader has parsed others meanwhile. */
  #servFail(query: Buffer, client: Client, why?: Buffer): Buffer | undefined {
    if (this.#reader.read(query) !== 'ok') return undefined
    return this.#writeRefusal(query, { code: 'servFail', client, ...(why === undefined ? {} : { why }) })
  }
}
