/** Joins the responder and the forwarder: what a socket calls with each packet. Never throws. */
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { Forwarder } from '../forward/forwarder.ts'
import type { DnsMetrics } from '../metrics.ts'
import { RCODE } from './query.ts'
import { FORWARD, type Responder, type Transport } from './responder.ts'
import type { DatagramSource } from './datagram-slots.ts'
import type { UdpServer } from './udp-server.ts'

export interface PacketHandlerDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: DnsMetrics
  readonly responder: Responder
  /** Undefined: names outside the zone are refused. */
  readonly forwarder: Forwarder | undefined
  /** Ends what is under way to the upstreams. */
  readonly signal: AbortSignal
}

/** One packet in 64 is timed: reading the clock twice is dear beside a kept answer. */
const SAMPLE_MASK = 63

export class PacketHandler {
  readonly #deps: PacketHandlerDeps
  #packets = 0

  constructor(deps: PacketHandlerDeps) {
    this.#deps = deps
  }

  /**
   * Gives the answer when it is at hand; one from an upstream goes to `later`. `query` and `source` are not used any
   * more when this has returned.
   */
  datagram(query: Buffer, source: DatagramSource, later: UdpServer['send']): Buffer | undefined {
    // Nothing can be sent to port 0, which only a forged packet has.
    if (source.port === 0) {
      this.#deps.metrics.dropped('no_source_port')
      return undefined
    }
    const answer = this.#answer(query, 'udp')
    if (!(answer instanceof Promise)) return answer
    const { address, port } = source
    void answer.then((late) => {
      if (late !== undefined && !this.#deps.signal.aborted) later(late, { address, port })
    })
    return undefined
  }

  /** One message of a TCP connection. */
  message(query: Buffer): Buffer | undefined | Promise<Buffer | undefined> {
    return this.#answer(query, 'tcp')
  }

  #answer(query: Buffer, transport: Transport): Buffer | undefined | Promise<Buffer | undefined> {
    const { clock, metrics, responder } = this.#deps
    this.#packets = (this.#packets + 1) & SAMPLE_MASK
    const started = this.#packets === 0 ? clock.monotonic() : -1
    try {
      const verdict = responder.respond(query, transport)
      if (started >= 0) metrics.took((clock.monotonic() - started) / 1000)
      return verdict === FORWARD ? this.#forward(Buffer.from(query), transport) : verdict
    } catch (error) {
      // A fault of ours. The client is told, and everyone else is still answered.
      this.#deps.logger.error('cannot answer a query', { error: String(error), query: query.toString('hex', 0, 300) })
      return responder.code(query, RCODE.servFail)
    }
  }

  async #forward(query: Buffer, transport: Transport): Promise<Buffer | undefined> {
    const { forwarder, responder, signal } = this.#deps
    const answer = await forwarder?.forward(query, transport, signal)
    return answer ?? responder.code(query, RCODE.servFail)
  }
}
