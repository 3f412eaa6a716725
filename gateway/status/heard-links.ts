/**
 * When something last came in over each link, by what its device counts: a probe's answer is not the only sign of life.
 */
import type { Clock } from '../../reconcile/clock.ts'
import type { LaneState } from '../cable/cable.ts'

interface Heard {
  readonly rxBytes: number
  /** Of the monotonic clock; undefined while nothing has come in since we look. */
  readonly atMs: number | undefined
}

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
