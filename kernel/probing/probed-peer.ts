/** The state that the prober keeps for one far end. */
import type { ConnectionState } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { answerWaitMs } from './answer-wait.ts'
import type { PathSize, SizeBounds } from './path-size.ts'
import { PeerHealth, type PeerHealthInit, type ProbeFigures, ProbeStats } from './peer-health.ts'
import { PROBE_BYTES, PROBE_HEADERS } from './probe-packet.ts'

/** A TCP probe without an answer for this long has failed. */
export const TCP_PROBE_LIFE_MS = 2000

interface Waiting {
  readonly sinceMs: number
  readonly stop: () => void
}

/**
 * TCP probes to one far kernel that wait for an answer. Each has its own deadline, because the round trip may take
 * longer than the pause between two TCP probes.
 */
export class TcpProbes {
  /** Oldest first. Each ends after TCP_PROBE_LIFE_MS, which limits their number. */
  #waiting: readonly Waiting[] = []
  /** Time of the first TCP probe of the current silence. */
  #firstMs: number | undefined

  /** Number of TCP probes that wait for an answer. */
  get size(): number {
    return this.#waiting.length
  }

  add(nowMs: number, stop: (() => void) | undefined): void {
    this.#firstMs ??= nowMs
    if (stop !== undefined) this.#waiting = [...this.#waiting, { sinceMs: nowMs, stop }]
  }

  /** Ends the TCP probes that have reached their deadline. */
  expire(nowMs: number): void {
    const late = this.#waiting.filter(({ sinceMs }) => nowMs - sinceMs >= TCP_PROBE_LIFE_MS)
    if (late.length === 0) return
    for (const { stop } of late) stop()
    this.#waiting = this.#waiting.filter((one) => !late.includes(one))
  }

  /** The far end has sent something: the next TCP probe is the first of a new silence. */
  silenceEnds(): void {
    this.#firstMs = undefined
  }

  /** True if the answer to the first TCP probe of this silence may still be on the way, according to the figures. */
  mayYetAnswer(nowMs: number, figures: ProbeFigures): boolean {
    return this.#firstMs !== undefined && nowMs - this.#firstMs < patienceMs(figures)
  }

  stop(): void {
    for (const { stop } of this.#waiting) stop()
    this.#waiting = []
    this.#firstMs = undefined
  }
}

/** TCP_PROBE_LIFE_MS if the round-trip time is not known. */
function patienceMs({ rttMs, jitterMs = 0 }: ProbeFigures): number {
  return rttMs === undefined ? TCP_PROBE_LIFE_MS : Math.min(TCP_PROBE_LIFE_MS, answerWaitMs({ rttMs, jitterMs }, 0))
}

/** A far end with its address and the number that identifies its probes. */
export interface ProbedPeer {
  /** Identifies the far end for the caller. Another key at the same address is another far end. */
  readonly key: string
  readonly address: string
  /** The number in questions from this far end, 0 to 255. */
  readonly number: number
  /** Changes if another gateway takes over the lane at the same address. */
  readonly identity?: string | undefined
  /** Bounds of the path size search. Absent if the far end does not support sized probes. */
  readonly sizes?: SizeBounds
  /** The size that passed in an earlier run. Absent if not known. */
  readonly sizeBefore?: number
}

/** `sinceMs` is a time of the monotonic clock. */
export interface MeasuredPeer {
  readonly state: ConnectionState
  readonly sinceMs: number
  readonly suspected: boolean
  /** True if it is up, and new connections should go elsewhere: PeerHealth.unanswered. */
  readonly unanswered: boolean
  /** Number of questions in a row without an answer, while it is up. */
  readonly misses: number
  readonly figures: ProbeFigures
  /** True if the kernel of the far end answers, but its process does not. */
  readonly kernelOnly: boolean
  /** Number of probe packets received from the far end and sent to it. */
  readonly probes: number
  /** Number of those that were sent to it. */
  readonly sentProbes: number
  /** Octets of the padded probes among them, as IP packets. */
  readonly paddedOctets: number
  /** True if no questions are sent to it: Prober.sleep(). Its state is that of before. */
  readonly asleep: boolean
  /**
   * Octets of the largest packet that reaches the far end, and of the largest that arrives from it. Absent if not
   * known.
   */
  readonly sendSize?: number
  readonly receiveSize?: number
  /** True while larger sizes than sendSize are tried. */
  readonly isTryingSizes: boolean
}

export interface PeerEntry<P> {
  peer: P
  readonly health: PeerHealth
  readonly stats: ProbeStats
  sequence: number
  /** Number of packets received and sent, and of those that were sent. */
  probes: number
  sentProbes: number
  paddedOctets: number
  /** True if no questions are sent. */
  asleep: boolean
  /** Undefined if sizes are not probed. */
  size: PathSize | undefined
  /** What answered the last question: the far process, or only its kernel. */
  answered: 'no' | 'probe' | 'kernel'
  /** True if only the kernel answered the last question that was answered. */
  kernelOnly: boolean
  /** Number of consecutive questions that only the kernel answered. */
  kernelInRow: number
  /** Monotonic time of the last question outside the regular intervals. */
  askedAtOnceMs: number
  /** When the last question was sent. */
  askedMs: number
  readonly tcpProbes: TcpProbes
  /** Cancels the next scheduled action. */
  cancel: () => void
}

export interface EntryDeps<P> {
  readonly clock: Clock
  readonly onTransition: (peer: P, from: ConnectionState, to: ConnectionState) => void
  readonly onSuspect: (peer: P, suspected: boolean) => void
  readonly onUnanswered?: (peer: P, unanswered: boolean) => void
}

export function newEntry<P extends ProbedPeer>(peer: P, deps: EntryDeps<P>, init: PeerHealthInit): PeerEntry<P> {
  const entry: PeerEntry<P> = {
    peer,
    health: new PeerHealth(
      {
        clock: deps.clock,
        onTransition: (from, to) => {
          if (to === 'up') entry.stats.restart()
          if (to === 'up') entry.size?.start()
          else entry.size?.stop()
          deps.onTransition(entry.peer, from, to)
        },
        onSuspect: (suspected) => deps.onSuspect(entry.peer, suspected),
        onUnanswered: (unanswered) => deps.onUnanswered?.(entry.peer, unanswered),
      },
      init,
    ),
    stats: new ProbeStats(),
    sequence: 0,
    probes: 0,
    sentProbes: 0,
    paddedOctets: 0,
    asleep: false,
    size: undefined,
    answered: 'no',
    kernelOnly: false,
    kernelInRow: 0,
    askedAtOnceMs: -Infinity,
    askedMs: -Infinity,
    tcpProbes: new TcpProbes(),
    cancel: () => undefined,
  }
  return entry
}

export function measured(entry: PeerEntry<unknown>): MeasuredPeer {
  const { health, stats, size, kernelOnly, probes, sentProbes, paddedOctets, asleep } = entry
  const { is: state, sinceMs } = health.state
  const misses = health.state.is === 'up' ? health.state.misses : 0
  const [sendSize, receiveSize] = [size?.sent, size?.received]
  return {
    state,
    sinceMs,
    suspected: health.suspected,
    unanswered: health.unanswered,
    misses,
    figures: stats.figures(),
    kernelOnly,
    probes,
    sentProbes,
    paddedOctets,
    asleep,
    isTryingSizes: size?.isTrying === true,
    ...(sendSize === undefined ? {} : { sendSize }),
    ...(receiveSize === undefined ? {} : { receiveSize }),
  }
}

/** On a lossy path, a probe may be lost while the TCP probe passes, but rarely this many times in a row. */
const PROCESS_SILENT_AFTER = 4

/**
 * Records what answered the last question. A far process that is silent for long does not count as loss on the path.
 */
export function noteWhoAnswered(entry: PeerEntry<unknown>, answered: 'probe' | 'kernel'): void {
  entry.kernelOnly = answered === 'kernel'
  entry.kernelInRow = entry.kernelOnly ? entry.kernelInRow + 1 : 0
  if (entry.kernelInRow >= PROCESS_SILENT_AFTER) entry.stats.excuse()
}

export function stopEntry({
  cancel,
  tcpProbes,
  size,
}: Pick<PeerEntry<unknown>, 'cancel' | 'tcpProbes' | 'size'>): void {
  cancel()
  tcpProbes.stop()
  size?.stop()
}

/** Counts a probe packet that was sent or received. */
export function count(entry: Pick<PeerEntry<unknown>, 'probes' | 'paddedOctets'>, bytes: Buffer): void {
  entry.probes += 1
  if (bytes.length > PROBE_BYTES) entry.paddedOctets += bytes.length + PROBE_HEADERS
}
