/** What is kept of one far end that is probed. */
import type { ConnectionState } from '../../model/objects.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { Knocks } from './knocks.ts'
import type { PathSize } from './path-size.ts'
import { PeerHealth, type PeerHealthInit } from './peer-health.ts'
import { PROBE_BYTES, PROBE_HEADERS } from './probe-packet.ts'
import { type ProbeFigures, ProbeStats } from './probe-stats.ts'
import type { SizeBounds } from './size-search.ts'

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
