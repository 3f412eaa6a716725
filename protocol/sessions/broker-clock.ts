/**
 * How far the broker's clock is ahead of the one here, by what the broker says of it at intervals. What waited on the
 * way makes the broker look behind, so of the last few the one that came quickest counts.
 */
const LAST = 3
/** One alone may have waited for anything. */
const LEAST = 2
/** Of the wall clock against the monotonic one: no machine drifts so far between two words of the broker. */
const STEP_MS = 1000

interface Heard {
  readonly aheadMs: number
  /** Of the wall clock here over the monotonic one. */
  readonly shiftMs: number
}

export class BrokerClock {
  #heard: readonly Heard[] = []

  /** Another stream begins, to another replica perhaps, and either clock may have been set meanwhile. */
  forget(): void {
    this.#heard = []
  }

  /** The first two are milliseconds since 1970. What was heard before the clock here was set does not count. */
  says(brokerMs: number, nowMs: number, monotonicMs: number): void {
    const heard = { aheadMs: brokerMs - nowMs, shiftMs: nowMs - monotonicMs }
    const still = this.#heard.filter(({ shiftMs }) => Math.abs(shiftMs - heard.shiftMs) <= STEP_MS)
    this.#heard = [...still, heard].slice(-LAST)
  }

  /** Milliseconds; negative where it is behind. Undefined: the broker has not said it twice, or says it never. */
  get aheadMs(): number | undefined {
    return this.#heard.length < LEAST ? undefined : Math.max(...this.#heard.map(({ aheadMs }) => aheadMs))
  }
}
