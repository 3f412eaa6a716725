/**
 * Forwards queries for names that are not ours to the upstreams. Each query has its own socket with a random port and a
 * random id (RFC 5452). Upstreams are tried one after the other, over UDP, and over TCP if an answer is truncated and
 * the client uses TCP. Clients that send the same query at the same time share one answer.
 */
import { randomInt } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { connect } from 'node:net'
import { formatAddress } from '../../model/addresses/addresses.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { Places, TokenBuckets, textHash } from '../clients/clients.ts'
import { type ForwardResult, type SocketAddress, formatSocketAddress } from '../config/config.ts'
import {
  HEADER_LENGTH,
  MAX_TCP_SIZE,
  MAX_UDP_SIZE,
  QueryReader,
  RCODE,
  type Transport,
  cutAnswer,
  sameQuestion,
  uint16,
} from '../message/message.ts'

export interface ForwarderDeps {
  readonly clock: Clock
  readonly onResult: (result: ForwardResult, seconds: number) => void
  /** An upstream did not answer, or reported that it cannot answer. The next one is tried. */
  readonly onFailure: (upstream: string, error: Error) => void
}

export interface ForwarderInit {
  readonly upstreams: readonly SocketAddress[]
  readonly timeoutMs: number
  /** Maximum number of concurrent queries. */
  readonly maxInFlight: number
  /** Queries that one client may send per second; twice as many after a pause. */
  readonly clientPerSecond: number
}

/** Identifies a client for its slots and its rate: one text for each IPv4 address and each IPv6 /64. */
export type ClientKey = string

/** Why a query is not forwarded: the client has used its share, no capacity is left, or the query is our own. */
export type ForwardRefusal = Exclude<ForwardResult, 'answered' | 'failed'>

/** Maximum number of clients' queries that wait for one answer, and the average for each concurrent query. */
const MAX_WAITERS = 1024
const MAX_WAITERS_ON_AVERAGE = 16
const FLAG_TC = 0x02
const CLASS_AND_TYPE_LENGTH = 4
/** Codes that describe the server, not the name: another server may know the name. RFC 1035 section 4.1.1. */
const FAILURE_CODES: ReadonlyMap<number, string> = new Map([
  [RCODE.servFail, 'SERVFAIL'],
  [RCODE.notImp, 'NOTIMP'],
  [RCODE.refused, 'REFUSED'],
])

/** One query to the upstreams, and the clients' queries that wait for its answer. */
interface Flight {
  readonly answer: Promise<Buffer | undefined>
  readonly waiters: Places
}

/**
 * A query with the id and question of one of ours has come back in a loop, or a client has chosen the same id: one
 * client in 65,536. So it is forwarded once more, under another id. If that one comes back too, it is a loop.
 */
type Own = 'first' | 'again'

/** Number of clients whose rate is stored. */
const RATES = 4096

export class Forwarder {
  readonly #deps: ForwarderDeps
  readonly #init: ForwarderInit
  readonly #reader = new QueryReader()
  /** Concurrent queries to the upstreams by our own id and question. */
  readonly #ownIds = new Map<string, Own>()
  /** By the whole query but its id, ignoring letter case: equal queries share an answer. */
  readonly #flights = new Map<string, Flight>()
  /** Clients' queries that wait for an answer. */
  readonly #waiting: Places
  /** Queries to the upstreams, by the client that asked first. */
  readonly #places: Places
  readonly #rates: TokenBuckets
  /** Index of the upstream that answered last. */
  #preferred = 0

  constructor(deps: ForwarderDeps, init: ForwarderInit) {
    this.#deps = deps
    this.#init = init
    this.#waiting = new Places(init.maxInFlight * MAX_WAITERS_ON_AVERAGE)
    this.#places = new Places(init.maxInFlight)
    const perSecond = init.clientPerSecond
    this.#rates = new TokenBuckets({ places: RATES, perSecond, burst: 2 * perSecond })
  }

  /** Number of concurrent queries to the upstreams. */
  get inFlight(): number {
    return this.#flights.size
  }

  /**
   * Takes a query that QueryReader has accepted. Returns the answer of the upstream with the client's id and letter
   * case, no larger than the client accepts, over UDP no larger than MAX_UDP_SIZE. Returns undefined if no upstream
   * answered, or the reason why the query was not forwarded. Never rejects.
   */
  async forward(query: Buffer, { transport, client }: Asking, signal: AbortSignal): Promise<Forwarded> {
    if (this.#reader.read(query) !== 'ok') return undefined
    const { questionEnd, clientSize, sizeAt, hasEdns, dnssecOk } = this.#reader
    const question = questionKey(query, questionEnd)
    const own = this.#ownIds.get(ownId(uint16(query, 0), question))
    if (own === 'again') return this.#refuse('loop')
    const started = this.#deps.clock.monotonic()
    if (!this.#rates.take(textHash(client), started)) return this.#refuse('client_rate')
    const asking = { query, question, questionEnd, sizeAt, transport, client, mayBeOwn: own !== undefined }
    const flight = this.#join(asking, signal)
    if (typeof flight === 'string') return this.#refuse(flight)

    for (const places of [this.#waiting, flight.waiters]) places.take(client)
    const answer = await flight.answer
    for (const places of [this.#waiting, flight.waiters]) places.giveBack(client)
    this.#deps.onResult(answer === undefined ? 'failed' : 'answered', (this.#deps.clock.monotonic() - started) / 1000)
    if (answer === undefined) return undefined
    const maxSize = transport === 'tcp' ? MAX_TCP_SIZE : Math.min(clientSize, MAX_UDP_SIZE)
    return restore(Buffer.from(answer), { query, questionEnd, hasEdns, dnssecOk, maxSize })
  }

  /** Returns the flight of an equal query, or a new one, or the reason why there is no room. */
  #join(asking: Question, signal: AbortSignal): Flight | ForwardRefusal {
    const { query, question, questionEnd, transport, client, mayBeOwn } = asking
    // Flags and EDNS options also affect the answer. A query that came back would wait for itself.
    const flags = query.toString('latin1', 2, HEADER_LENGTH)
    const key = `${mayBeOwn ? 'again ' : ''}${transport} ${flags}${question}${query.toString('latin1', questionEnd)}`
    const known = this.#flights.get(key)
    const refused = this.#waiting.refuses(client) ?? (known?.waiters ?? this.#places).refuses(client)
    if (refused !== undefined) return refused === 'own' ? 'client_places' : 'overloaded'
    if (known !== undefined) return known

    const asked = withOwnSize(query, asking)
    const id = randomInt(0x10000)
    asked.writeUInt16BE(id, 0)
    const own = ownId(id, question)
    this.#ownIds.set(own, mayBeOwn ? 'again' : 'first')
    this.#places.take(client)
    const answer = this.#askInTurn({ asked, questionEnd, transport }, signal).finally(() => {
      this.#ownIds.delete(own)
      this.#flights.delete(key)
      this.#places.giveBack(client)
    })
    const flight = { answer, waiters: new Places(MAX_WAITERS) }
    this.#flights.set(key, flight)
    return flight
  }

  #refuse<T extends ForwardRefusal>(result: T): T {
    this.#deps.onResult(result, 0)
    return result
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
        this.#deps.onFailure(formatSocketAddress(upstream), new Error(`the upstream answers ${code}`))
      } catch (error) {
        if (!signal.aborted) this.#deps.onFailure(formatSocketAddress(upstream), error as Error)
      }
    }
    // No upstream has an answer, so the client gets the first error response.
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
      // With several upstreams, a lost packet only means that the next one is tried. A single upstream is queried
      // twice.
      repeats: this.#init.upstreams.length === 1,
      isAnswer: (message: Buffer) => isAnswerTo(asked, questionEnd, message),
    }
    const answer = await exchangeUdp(exchange)
    const isCut = ((answer[2] ?? 0) & FLAG_TC) !== 0
    // A client on UDP sees that the answer is truncated, and retries over TCP itself.
    return isCut && transport === 'tcp' ? exchangeTcp(exchange) : answer
  }
}

/** How a query arrived, and from which client. */
export interface Asking {
  readonly transport: Transport
  readonly client: ClientKey
}

/** The answer of an upstream, undefined if there is none, or why the query was not forwarded. */
export type Forwarded = Buffer | ForwardRefusal | undefined

interface Question extends Asking {
  readonly query: Buffer
  /** Name in lower case, type and class. */
  readonly question: string
  readonly questionEnd: number
  /** Offset of the size in the EDNS record; 0 if there is none. */
  readonly sizeAt: number
  /** It has the id and question of one of our own queries. */
  readonly mayBeOwn: boolean
}

interface ForwardRequest {
  readonly asked: Buffer
  readonly questionEnd: number
  readonly transport: Transport
}

/**
 * Returns the name in lower case, type and class. Octets of type and class stay unchanged, because they may look like
 * letters.
 */
function questionKey(query: Buffer, questionEnd: number): string {
  const nameEnd = questionEnd - CLASS_AND_TYPE_LENGTH
  return query.toString('latin1', HEADER_LENGTH, nameEnd).toLowerCase() + query.toString('latin1', nameEnd, questionEnd)
}

/**
 * Returns a copy that offers our own size to the upstreams: a larger answer would arrive fragmented, and would be
 * truncated here.
 */
function withOwnSize(query: Buffer, { sizeAt }: Pick<Question, 'sizeAt'>): Buffer {
  const asked = Buffer.from(query)
  if (sizeAt > 0) asked.writeUInt16BE(Math.min(uint16(query, sizeAt), MAX_UDP_SIZE), sizeAt)
  return asked
}

function ownId(id: number, question: string): string {
  return `${id} ${question}`
}

/**
 * True for an answer with our id and our question. Some servers omit the question from an error. RFC 5452 section 9.1.
 */
function isAnswerTo(asked: Buffer, questionEnd: number, message: Buffer): boolean {
  if (message.length < HEADER_LENGTH || uint16(message, 0) !== uint16(asked, 0)) return false
  const flags = message[2] ?? 0
  if ((flags & 0x80) === 0 || (flags & 0x78) !== 0) return false
  const isBareError = uint16(message, 4) === 0 && ((message[3] ?? 0) & 0x0f) !== 0 && message.length === HEADER_LENGTH
  return isBareError || sameQuestion(asked, message, questionEnd)
}

interface RestoreInit extends Pick<QueryReader, 'questionEnd' | 'hasEdns' | 'dnssecOk'> {
  readonly query: Buffer
  readonly maxSize: number
}

/** Restores the client's id and question in place. Truncates an answer that is too large for the client. */
function restore(answer: Buffer, init: RestoreInit): Buffer {
  const { query, questionEnd, maxSize } = init
  answer.writeUInt16BE(uint16(query, 0), 0)
  if (answer.length < questionEnd) return answer
  query.copy(answer, HEADER_LENGTH, HEADER_LENGTH, questionEnd)
  return answer.length <= maxSize ? answer : cutAnswer(answer, init)
}

// One query to one upstream, over UDP or TCP, which ends with the first matching answer, an error or a timeout.

interface Exchange {
  readonly upstream: SocketAddress
  readonly query: Buffer
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  /** Over UDP, repeats the query after half the timeout, since a packet may be lost. */
  readonly repeats: boolean
  /** True for the answer to this query. Other messages are ignored. */
  readonly isAnswer: (message: Buffer) => boolean
}

/** The socket is connected, so the kernel drops packets of other hosts. Rejects on timeout, refusal and abort. */
function exchangeUdp(exchange: Exchange): Promise<Buffer> {
  const { upstream, query, clock, timeoutMs, repeats } = exchange
  const socket = createSocket(upstream.address.family === 4 ? 'udp4' : 'udp6')
  let cancelRepeat = (): void => undefined
  return settleOnce(exchange, {
    start: (resolve, reject) => {
      const send = (): void => {
        try {
          socket.send(query, (error) => {
            if (error !== null) reject(error)
          })
        } catch (error) {
          // The socket was closed meanwhile.
          reject(error as Error)
        }
      }
      socket.on('error', reject)
      socket.on('message', (message) => {
        if (exchange.isAnswer(message)) resolve(message)
      })
      socket.connect(upstream.port, formatAddress(upstream.address), send)
      if (repeats) cancelRepeat = clock.setTimer(timeoutMs / 2, send)
    },
    stop: () => {
      cancelRepeat()
      socket.close()
    },
  })
}

/** Sends one query over its own connection. RFC 7766. */
function exchangeTcp(exchange: Exchange): Promise<Buffer> {
  const { upstream, query } = exchange
  const socket = connect({ host: formatAddress(upstream.address), port: upstream.port, noDelay: true })
  let received: Buffer = Buffer.alloc(0)
  return settleOnce(exchange, {
    start: (resolve, reject) => {
      socket.on('error', reject)
      socket.on('end', () => reject(new Error('the connection ended before the whole answer')))
      socket.on('data', (chunk: Buffer) => {
        received = Buffer.concat([received, chunk])
        if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) return
        const message = received.subarray(2, 2 + received.readUInt16BE(0))
        if (exchange.isAnswer(message)) resolve(message)
        else reject(new Error('the answer does not match the question'))
      })
      const length = Buffer.alloc(2)
      length.writeUInt16BE(query.length, 0)
      socket.write(Buffer.concat([length, query]))
    },
    stop: () => socket.destroy(),
  })
}

interface Attempt {
  readonly start: (resolve: (answer: Buffer) => void, reject: (error: Error) => void) => void
  readonly stop: () => void
}

function settleOnce({ clock, timeoutMs, signal }: Exchange, attempt: Attempt): Promise<Buffer> {
  let release = (): void => undefined
  const settled = new Promise<Buffer>((resolve, reject) => {
    const cancel = clock.setTimer(timeoutMs, () => reject(new Error(`no answer within ${timeoutMs} ms`)))
    const onAbort = (): void => reject(new Error('stopped'))
    signal.addEventListener('abort', onAbort, { once: true })
    release = () => {
      cancel()
      signal.removeEventListener('abort', onAbort)
      attempt.stop()
    }
    if (signal.aborted) onAbort()
    else attempt.start(resolve, reject)
  })
  return settled.finally(release)
}
