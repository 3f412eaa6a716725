/** What is kept of one far end that is probed. */
import type { ConnectionState } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { PathSize, SizeBounds } from './path-size.ts'
import { PeerHealth, type PeerHealthInit, type ProbeFigures, ProbeStats } from './peer-health.ts'
import { PROBE_BYTES, PROBE_HEADERS } from './probe-packet.ts'

/** A knock that got no answer for so long gets none. */
export const KNOCK_LIFE_MS = 2000

interface Waiting {
  readonly sinceMs: number
  readonly stop: () => void
}

/**
 * Knocks at one far kernel that wait for an answer. Each has its own time, whatever is knocked meanwhile: the way there
 * and back may take longer than the pause between two of them.
 */
export class Knocks {
  /** Oldest first. They end by KNOCK_LIFE_MS, so there are never more than knocks in that time. */
  #waiting: readonly Waiting[] = []
  /** When this silence was knocked at first. */
  #firstMs: number | undefined

  /** How many wait. */
  get size(): number {
    return this.#waiting.length
  }

  add(nowMs: number, stop: (() => void) | undefined): void {
    this.#firstMs ??= nowMs
    if (stop !== undefined) this.#waiting = [...this.#waiting, { sinceMs: nowMs, stop }]
  }

  /** Ends those that have waited long enough. */
  expire(nowMs: number): void {
    const late = this.#waiting.filter(({ sinceMs }) => nowMs - sinceMs >= KNOCK_LIFE_MS)
    if (late.length === 0) return
    for (const { stop } of late) stop()
    this.#waiting = this.#waiting.filter((one) => !late.includes(one))
  }

  /** The far end has sent something: the next knock is the first of another silence. */
  silenceEnds(): void {
    this.#firstMs = undefined
  }

  /** Whether the first knock of this silence may still be on its way, by what is known of the way. */
  mayYetAnswer(nowMs: number, figures: ProbeFigures): boolean {
    return this.#firstMs !== undefined && nowMs - this.#firstMs < patienceMs(figures)
  }

  stop(): void {
    for (const { stop } of this.#waiting) stop()
    this.#waiting = []
    this.#firstMs = undefined
  }
}

/**
 * Half as much again as the way there and back takes, for it varies. Where that is not known: all of a knock's life.
 */
function patienceMs({ rttMs, jitterMs = 0 }: ProbeFigures): number {
  return rttMs === undefined ? KNOCK_LIFE_MS : Math.min(KNOCK_LIFE_MS, 1.5 * rttMs + 4 * jitterMs)
}

/** Far end and number on the wire of one who probes. */
export interface ProbedPeer {
  /** Names it for the caller; another one at the same address is another far end. */
  readonly key: string
  readonly address: string
  /** The number that its questions carry, 0 to 255. */
  readonly number: number
  /** Another one at the same address: another gateway has taken the lane over. */
  readonly identity?: string | undefined
  /** It is asked which packets get there, within these. Absent: it is not, for it does not understand that. */
  readonly sizes?: SizeBounds
  /** What got there when somebody looked last. Absent: not known. */
  readonly sizeBefore?: number
}

/** `sinceMs`: of the monotonic clock. */
export interface MeasuredPeer {
  readonly state: ConnectionState
  readonly sinceMs: number
  readonly doubted: boolean
  readonly figures: ProbeFigures
  /** The far process does not answer, but its kernel does. */
  readonly kernelOnly: boolean
  /** Received from it and sent to it until now. */
  readonly probes: number
  /** Of those, what padded ones had in octets, as IP packets. */
  readonly paddedOctets: number
  /** Octets of the largest packet that gets there, and from there to here. Absent: not known. */
  readonly sendSize?: number
  readonly receiveSize?: number
  /** Larger ones than sendSize may get there: that is being tried. */
  readonly isTryingSizes: boolean
}

export interface PeerEntry<P> {
  peer: P
  readonly health: PeerHealth
  readonly stats: ProbeStats
  sequence: number
  /** Received and sent. */
  probes: number
  paddedOctets: number
  /** Where it is asked about sizes. */
  size: PathSize | undefined
  /** The last question: by a probe, or by the kernel alone. */
  answered: 'no' | 'probe' | 'kernel'
  /** The last question that was answered was answered by the kernel alone. */
  kernelOnly: boolean
  /** So many questions in a row that the kernel alone answered. */
  kernelInRow: number
  /** When it was asked beside the beat, monotonic. */
  askedAtOnceMs: number
  /** When the last question was sent. */
  askedMs: number
  readonly knocks: Knocks
  /** Takes the next turn away. */
  cancel: () => void
}

export interface EntryDeps<P> {
  readonly clock: Clock
  readonly onTransition: (peer: P, from: ConnectionState, to: ConnectionState) => void
  readonly onDoubt: (peer: P, doubted: boolean) => void
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
        onDoubt: (doubted) => deps.onDoubt(entry.peer, doubted),
      },
      init,
    ),
    stats: new ProbeStats(),
    sequence: 0,
    probes: 0,
    paddedOctets: 0,
    size: undefined,
    answered: 'no',
    kernelOnly: false,
    kernelInRow: 0,
    askedAtOnceMs: -Infinity,
    askedMs: -Infinity,
    knocks: new Knocks(),
    cancel: () => undefined,
  }
  return entry
}

export function measured({ health, stats, size, kernelOnly, probes, paddedOctets }: PeerEntry<unknown>): MeasuredPeer {
  const { is: state, sinceMs } = health.state
  const [sendSize, receiveSize] = [size?.sent, size?.received]
  return {
    state,
    sinceMs,
    doubted: health.doubted,
    figures: stats.figures(),
    kernelOnly,
    probes,
    paddedOctets,
    isTryingSizes: size?.isTrying === true,
    ...(sendSize === undefined ? {} : { sendSize }),
    ...(receiveSize === undefined ? {} : { receiveSize }),
  }
}

/** A way that loses packets now and then takes the probe and leaves the knock: seldom so many times in a row. */
const PROCESS_SILENT_AFTER = 4

/** Who answered the last question. A process that is silent for long is no loss of the way. */
export function noteWhoAnswered(entry: PeerEntry<unknown>, answered: 'probe' | 'kernel'): void {
  entry.kernelOnly = answered === 'kernel'
  entry.kernelInRow = entry.kernelOnly ? entry.kernelInRow + 1 : 0
  if (entry.kernelInRow >= PROCESS_SILENT_AFTER) entry.stats.excuse()
}

export function stopEntry({ cancel, knocks, size }: Pick<PeerEntry<unknown>, 'cancel' | 'knocks' | 'size'>): void {
  cancel()
  knocks.stop()
  size?.stop()
}

/** A packet of a probe was sent there, or came from there. */
export function count(entry: Pick<PeerEntry<unknown>, 'probes' | 'paddedOctets'>, bytes: Buffer): void {
  entry.probes += 1
  if (bytes.length > PROBE_BYTES) entry.paddedOctets += bytes.length + PROBE_HEADERS
}
