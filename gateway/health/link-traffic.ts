/**
 * Finds the links over which traffic flowed lately, from what the device counts beyond the node's own probes. Such
 * links are probed more often.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { LaneState } from '../cable/cable.ts'

/** Probes received and sent since the prober knows the far end. */
export interface ProbeCount {
  readonly probes: number
  /** Octets of the padded probes, as IP packets. */
  readonly paddedOctets: number
}

export interface LinkCount {
  /** The healthKey() of the link. */
  readonly key: string
  /** Received and sent bytes as the device counts them. */
  readonly bytes: number
  /** The count before the device was read, and the count after. */
  readonly least: ProbeCount
  readonly most: ProbeCount
}

/** A link counts as busy for this long after traffic was last seen. */
export const BUSY_MS = 10_000
/**
 * What the device counts for a probe of 32 octets: IPv4 and UDP, padded to 64, and WireGuard's 32 (its paper, 5.4.6).
 */
export const PROBE_BYTES_COUNTED = 96
/** A handshake and a keepalive (148, 92 and 32 octets), and a probe that is under way between two readings. */
const SPARE_BYTES = 400
/** Padded probes that the device has counted and this process has not read yet. */
const SPARE_PADDED_BYTES = 3000

interface Seen extends LinkCount {
  readonly busyAtMs: number
}

export class BusyLinks {
  readonly #clock: Pick<Clock, 'monotonic'>
  #links: ReadonlyMap<string, Seen> = new Map()

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** Takes the present counts. Forgets links that are not among them. A new link is not busy yet. */
  look(counts: Iterable<LinkCount>): void {
    const nowMs = this.#clock.monotonic()
    const seen = new Map<string, Seen>()
    for (const count of counts) {
      const before = this.#links.get(count.key)
      seen.set(count.key, { ...count, busyAtMs: hasTraffic(before, count) ? nowMs : (before?.busyAtMs ?? -Infinity) })
    }
    this.#links = seen
  }

  /** healthKey()s of the links with recent traffic. */
  busy(): readonly string[] {
    return [...this.#links.keys()].filter((key) => this.isBusy(key))
  }

  isBusy(key: string): boolean {
    return this.#clock.monotonic() - this.busyAtMs(key) < BUSY_MS
  }

  /** When traffic was last seen, in milliseconds of the monotonic clock. -Infinity: never. */
  busyAtMs(key: string): number {
    return this.#links.get(key)?.busyAtMs ?? -Infinity
  }
}

/** A link that is created again counts from 0. Nothing is known about its traffic then. */
function hasTraffic(before: LinkCount | undefined, { bytes, most }: LinkCount): boolean {
  if (before === undefined || bytes < before.bytes) return false
  const probes = most.probes - before.least.probes
  // For a padded probe, its octets are added to the fixed count of every probe.
  const padded = most.paddedOctets - before.least.paddedOctets
  if (probes < 0 || padded < 0) return false
  const spare = SPARE_BYTES + Math.min(SPARE_PADDED_BYTES, padded)
  return bytes - before.bytes > probes * PROBE_BYTES_COUNTED + padded + spare
}

interface Heard {
  readonly rxBytes: number
  /** When bytes were last received, on the monotonic clock. Undefined if there were none since the first look. */
  readonly atMs: number | undefined
}

/**
 * Records when something was last received over each link, from what its device counts. Answers to probes are not the
 * only sign of life.
 */
export class HeardLinks {
  readonly #clock: Pick<Clock, 'monotonic'>
  #links: ReadonlyMap<string, Heard> = new Map()

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** Takes the present counts of the lanes. Forgets links that no longer exist. */
  look(lanes: Iterable<LaneState>): void {
    const nowMs = this.#clock.monotonic()
    const seen = new Map<string, Heard>()
    for (const { links } of lanes) {
      for (const [key, { rxBytes }] of links) {
        const before = this.#links.get(key)
        // A link that is created again counts from 0. The time of what it counted before the first look is unknown.
        const grown = before !== undefined && rxBytes > before.rxBytes
        seen.set(key, { rxBytes, atMs: grown ? nowMs : before?.atMs })
      }
    }
    this.#links = seen
  }

  /** Milliseconds since something was last received, by linkKey(). Undefined if nothing was since the first look. */
  heardMs(key: string): number | undefined {
    const atMs = this.#links.get(key)?.atMs
    return atMs === undefined ? undefined : this.#clock.monotonic() - atMs
  }
}
