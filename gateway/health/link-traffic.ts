/**
 * Over which links traffic flowed lately, by what their device counts beside our own probes: where it did, a link is
 * asked more often.
 */
import type { Clock } from '../../reconcile/reconcile.ts'
import type { LaneState } from '../cable/cable.ts'

/** Probes received and sent since the prober knows the far end. */
export interface ProbeCount {
  readonly probes: number
  /** Octets of those that were padded, as IP packets. */
  readonly paddedOctets: number
}

export interface LinkCount {
  /** healthKey(). */
  readonly key: string
  /** Received and sent, as the device counts them. */
  readonly bytes: number
  /** Before the device was asked, and after. */
  readonly least: ProbeCount
  readonly most: ProbeCount
}

/** A link counts as busy for so long after traffic was last seen. */
export const BUSY_MS = 10_000
/** What the device counts for a probe of 32 octets: IPv4 and UDP, padded to 64, and WireGuard's 32 (its paper, 5.4.6). */
const PROBE_BYTES_COUNTED = 96
/** A handshake and a keepalive (148, 92 and 32 octets), and a probe that is on its way between two readings. */
const SPARE_BYTES = 400
/** Padded probes that the device has counted, and this process has not read yet. */
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

  /** Takes what is counted now. Links that are not among them are forgotten; one that is new is not busy yet. */
  look(counts: Iterable<LinkCount>): void {
    const nowMs = this.#clock.monotonic()
    const seen = new Map<string, Seen>()
    for (const count of counts) {
      const before = this.#links.get(count.key)
      seen.set(count.key, { ...count, busyAtMs: hasTraffic(before, count) ? nowMs : (before?.busyAtMs ?? -Infinity) })
    }
    this.#links = seen
  }

  /** healthKey()s of the links with traffic lately. */
  busy(): readonly string[] {
    return [...this.#links.keys()].filter((key) => this.isBusy(key))
  }

  isBusy(key: string): boolean {
    const busyAtMs = this.#links.get(key)?.busyAtMs ?? -Infinity
    return this.#clock.monotonic() - busyAtMs < BUSY_MS
  }
}

/** A link that is made anew counts from 0 again: then nothing is known. */
function hasTraffic(before: LinkCount | undefined, { bytes, most }: LinkCount): boolean {
  if (before === undefined || bytes < before.bytes) return false
  const probes = most.probes - before.least.probes
  // Of a padded probe its octets are more than what every probe is counted with.
  const padded = most.paddedOctets - before.least.paddedOctets
  if (probes < 0 || padded < 0) return false
  const spare = SPARE_BYTES + Math.min(SPARE_PADDED_BYTES, padded)
  return bytes - before.bytes > probes * PROBE_BYTES_COUNTED + padded + spare
}

interface Heard {
  readonly rxBytes: number
  /** Of the monotonic clock; undefined while nothing has come in since we look. */
  readonly atMs: number | undefined
}

/**
 * When something last came in over each link, by what its device counts: a probe's answer is not the only sign of life.
 */
export class HeardLinks {
  readonly #clock: Pick<Clock, 'monotonic'>
  #links: ReadonlyMap<string, Heard> = new Map()

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** Takes what the lanes count now. Links that are gone are forgotten. */
  look(lanes: Iterable<LaneState>): void {
    const nowMs = this.#clock.monotonic()
    const seen = new Map<string, Heard>()
    for (const { links } of lanes) {
      for (const [key, { rxBytes }] of links) {
        const before = this.#links.get(key)
        // A link that is made anew begins to count at 0; what it had counted before we looked is of no known time.
        const grown = before !== undefined && rxBytes > before.rxBytes
        seen.set(key, { rxBytes, atMs: grown ? nowMs : before?.atMs })
      }
    }
    this.#links = seen
  }

  /** Milliseconds since then, by linkKey(); undefined where nothing came in since we look. */
  heardMs(key: string): number | undefined {
    const atMs = this.#links.get(key)?.atMs
    return atMs === undefined ? undefined : this.#clock.monotonic() - atMs
  }
}
