/**
 * Makes lines and connect times of the calls that the kernel samples: it logs the first packet of a call and the packet
 * that answers or refuses it. Both have the address of the server, not of the service that was called. Pure; bounded.
 */
import type { LoggedPacket } from '../../kernel/nfnetlink/nfnetlink.ts'
import type { FlowLine, FlowParties } from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { CallNames, CallParties } from './call-parties.ts'
import { SAMPLES_A_SECOND, SAMPLE_MS } from './plan-flows-table.ts'
import type { CallAddresses } from './plan-totals.ts'

export const MAX_FLOW_LINES = 200
/** Calls of both families that wait for an answer. */
const MAX_WAITING = (3 * SAMPLES_A_SECOND * SAMPLE_MS) / 1000

const REASONS = {
  refused: 'CallRefused',
  unanswered: 'CallUnanswered',
  timedOut: 'CallTimedOut',
  noEndpoint: 'CallWithoutEndpoint',
} as const satisfies Readonly<Record<string, ReasonCode>>

/** How a sampled call began. */
export interface CallBegun {
  /** The same for all packets of the call in its direction. */
  readonly key: string
  readonly call: CallAddresses
  /** As they were then. */
  readonly names: CallNames
  readonly protocol: string
  readonly port: number
  readonly sourcePort: number
  /** When its first packet came: time of the wall clock. */
  readonly atMs: number
  /** `followed`: it was answered, and the kernel logs its end. */
  readonly outcome: 'answered' | 'followed' | 'refused' | 'unanswered'
}

export interface CallListener {
  /** The time from SYN to SYN-ACK. */
  onTime(parties: FlowParties, ms: number): void
  onBegun(call: CallBegun): void
}

interface Waiting {
  readonly call: CallAddresses
  /** As they were with its first packet. */
  readonly names: CallNames
  readonly protocol: string
  readonly port: number
  readonly sourcePort: number
  /** Time of the wall clock. */
  readonly atMs: number
  /** Monotonic time. */
  readonly sinceMs: number
}

type Parties = Pick<CallParties, 'namesOf' | 'ends' | 'hasNoEndpoint'>

export class CallSamples {
  readonly #parties: Parties
  readonly #listener: CallListener
  readonly #clock: Pick<Clock, 'now' | 'monotonic'>
  readonly #waiting = new Map<string, Waiting>()
  readonly #lines: FlowLine[] = []
  #number = 0

  constructor(clock: Pick<Clock, 'now' | 'monotonic'>, parties: Parties, listener: CallListener) {
    this.#clock = clock
    this.#parties = parties
    this.#listener = listener
  }

  /** The oldest first. */
  get lines(): readonly FlowLine[] {
    return [...this.#lines]
  }

  /** Takes a packet of NFLOG_GROUP_FLOWS. */
  take(packet: LoggedPacket): void {
    const { prefix, atMs = this.#clock.now() } = packet
    if (prefix === 'opened') this.#opened(packet, atMs)
    if (prefix !== 'answered' && prefix !== 'followed' && prefix !== 'refused') return
    const key = keyOfAnswer(packet)
    const waiting = key === undefined ? undefined : this.#waiting.get(key)
    if (key === undefined || waiting === undefined) return
    this.#waiting.delete(key)
    const names = this.#parties.namesOf(waiting.call, waiting.names)
    const ms = Math.max(0, atMs - waiting.atMs)
    if (prefix !== 'refused' && waiting.protocol === 'tcp') this.#listener.onTime(names.parties, ms)
    const line =
      prefix === 'refused' ? ({ outcome: prefix, reason: REASONS.refused } as const) : { outcome: 'answered' as const }
    this.#add({ ...waiting, names }, { ...line, ms })
    this.#listener.onBegun({ ...waiting, names, key, outcome: prefix })
  }

  #opened(packet: LoggedPacket, atMs: number): void {
    const { source, destination, protocol, port, sourcePort = 0 } = packet
    const key = keyOf(packet)
    if (key === undefined || port === undefined) return
    const call = { client: source, called: destination, server: destination }
    const names = this.#parties.namesOf(call)
    const waiting = { call, names, protocol, port, sourcePort, atMs, sinceMs: this.#clock.monotonic() }
    if (this.#parties.hasNoEndpoint(call)) {
      this.#add(waiting, { outcome: 'refused', reason: REASONS.noEndpoint })
      this.#listener.onBegun({ ...waiting, key, outcome: 'refused' })
    } else if (this.#waiting.size < MAX_WAITING) {
      this.#waiting.set(key, waiting)
    }
  }

  /** Gives up on what has waited for long. */
  expire(): void {
    const nowMs = this.#clock.monotonic()
    for (const [key, waiting] of this.#waiting) {
      if (nowMs - waiting.sinceMs < SAMPLE_MS) continue
      this.#waiting.delete(key)
      const call = { ...waiting, names: this.#parties.namesOf(waiting.call, waiting.names) }
      this.#add(call, { outcome: 'unanswered', reason: REASONS.unanswered })
      this.#listener.onBegun({ ...call, key, outcome: 'unanswered' })
    }
  }

  /** A call that was answered has ended by a time-out. The line has the names of `call`. */
  timedOut(call: Pick<CallBegun, 'call' | 'names' | 'protocol' | 'port' | 'atMs'>): void {
    this.#add(call, { outcome: 'timed-out', reason: REASONS.timedOut, ms: Math.max(0, this.#clock.now() - call.atMs) })
  }

  #add(
    { call, names, protocol, port, atMs }: Pick<Waiting, 'call' | 'names' | 'protocol' | 'port' | 'atMs'>,
    said: Pick<FlowLine, 'outcome' | 'reason' | 'ms'>,
  ): void {
    this.#number += 1
    this.#lines.push({
      number: this.#number,
      at: new Date(atMs).toISOString(),
      ...said,
      ...this.#parties.ends(call, names),
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

/** The key of the call that a packet answers or refuses. Undefined without ports. */
export function keyOfAnswer(packet: LoggedPacket): string | undefined {
  return packet.about === undefined ? keyOf(reversed(packet)) : keyOf(packet.about)
}

/** The same for all packets of a call in its direction. Undefined without ports. */
export function keyOf({ source, destination, protocol, port, sourcePort }: Ends): string | undefined {
  return port === undefined ? undefined : `${protocol} ${source} ${sourcePort} ${destination} ${port}`
}
