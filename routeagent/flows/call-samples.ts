/**
 * Makes lines and connect times of the calls that the kernel samples: it logs the first packet of a call and the packet
 * that answers or refuses it. Both have the address of the server, not of the service that was called. Pure; bounded.
 */
import type { LoggedPacket } from '../../kernel/nflog/nflog.ts'
import type { FlowLine, FlowParties } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { CallParties } from './call-parties.ts'
import { SAMPLES_A_SECOND, SAMPLE_MS } from './plan-flows-table.ts'
import type { CallAddresses } from './plan-totals.ts'

export const MAX_FLOW_LINES = 200
/** Calls of both families that wait for an answer. */
const MAX_WAITING = (3 * SAMPLES_A_SECOND * SAMPLE_MS) / 1000

const REASONS = {
  refused: 'CallRefused',
  unanswered: 'CallUnanswered',
  noEndpoint: 'CallWithoutEndpoint',
} as const satisfies Readonly<Record<string, ReasonCode>>

interface Waiting {
  readonly call: CallAddresses
  readonly protocol: string
  readonly port: number
  /** Time of the wall clock. */
  readonly atMs: number
  /** Monotonic time. */
  readonly sinceMs: number
}

export class CallSamples {
  readonly #parties: Pick<CallParties, 'of' | 'ends' | 'hasNoEndpoint'>
  readonly #onTime: (parties: FlowParties, ms: number) => void
  readonly #clock: Pick<Clock, 'now' | 'monotonic'>
  readonly #waiting = new Map<string, Waiting>()
  readonly #lines: FlowLine[] = []
  #number = 0

  /** `onTime` takes the time from SYN to SYN-ACK. */
  constructor(
    clock: Pick<Clock, 'now' | 'monotonic'>,
    parties: Pick<CallParties, 'of' | 'ends' | 'hasNoEndpoint'>,
    onTime: (parties: FlowParties, ms: number) => void,
  ) {
    this.#clock = clock
    this.#parties = parties
    this.#onTime = onTime
  }

  /** The oldest first. */
  get lines(): readonly FlowLine[] {
    return [...this.#lines]
  }

  /** Takes a packet of NFLOG_GROUP_FLOWS. */
  take(packet: LoggedPacket): void {
    const { prefix, atMs = this.#clock.now() } = packet
    if (prefix === 'opened') this.#opened(packet, atMs)
    if (prefix !== 'answered' && prefix !== 'refused') return
    const key = packet.about === undefined ? keyOf(reversed(packet)) : keyOf(packet.about)
    const waiting = key === undefined ? undefined : this.#waiting.get(key)
    if (key === undefined || waiting === undefined) return
    this.#waiting.delete(key)
    const ms = Math.max(0, atMs - waiting.atMs)
    if (prefix === 'answered' && waiting.protocol === 'tcp') this.#onTime(this.#parties.of(waiting.call), ms)
    this.#add(
      waiting,
      prefix === 'answered' ? { outcome: prefix, ms } : { outcome: prefix, reason: REASONS.refused, ms },
    )
  }

  #opened(packet: LoggedPacket, atMs: number): void {
    const { source, destination, protocol, port } = packet
    const key = keyOf(packet)
    if (key === undefined || port === undefined) return
    const call = { client: source, called: destination, server: destination }
    const waiting = { call, protocol, port, atMs, sinceMs: this.#clock.monotonic() }
    if (this.#parties.hasNoEndpoint(call)) this.#add(waiting, { outcome: 'refused', reason: REASONS.noEndpoint })
    else if (this.#waiting.size < MAX_WAITING) this.#waiting.set(key, waiting)
  }

  /** Gives up on what has waited for long. */
  expire(): void {
    const nowMs = this.#clock.monotonic()
    for (const [key, waiting] of this.#waiting) {
      if (nowMs - waiting.sinceMs < SAMPLE_MS) continue
      this.#waiting.delete(key)
      this.#add(waiting, { outcome: 'unanswered', reason: REASONS.unanswered })
    }
  }

  #add({ call, protocol, port, atMs }: Waiting, said: Pick<FlowLine, 'outcome' | 'reason' | 'ms'>): void {
    this.#number += 1
    this.#lines.push({
      number: this.#number,
      at: new Date(atMs).toISOString(),
      ...said,
      ...this.#parties.ends(call),
      ...{ protocol, port },
      ...(said.ms === undefined ? {} : { ms: Math.round(said.ms * 1000) / 1000 }),
    })
    if (this.#lines.length > MAX_FLOW_LINES) this.#lines.shift()
  }
}

type Ends = Pick<LoggedPacket, 'source' | 'destination' | 'protocol' | 'port' | 'sourcePort'>

function reversed({ source, destination, protocol, port, sourcePort }: Ends): Ends {
  return {
    ...{ source: destination, destination: source, protocol },
    ...(sourcePort === undefined || port === undefined ? {} : { port: sourcePort, sourcePort: port }),
  }
}

/** The same for all packets of a call in its direction. Undefined without ports. */
function keyOf({ source, destination, protocol, port, sourcePort }: Ends): string | undefined {
  return port === undefined ? undefined : `${protocol} ${source} ${sourcePort} ${destination} ${port}`
}
