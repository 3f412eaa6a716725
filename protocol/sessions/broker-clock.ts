/**
 * How far the broker's clock is ahead of the one here, by what the broker says of it at intervals. What waited on the
 * way makes the broker look behind, so of the last few the one that came quickest counts.
 */
const LAST = 3
/** One alone may have waited for anything. */
const LEAST = 2
/** Of the wall clock against the monotonic one: no machine drifts so far between two words of the broker. */
const STEP_MS = 1000

/** Two that say the same are right against one before them that differs by more: a clock was set. */
const SET_MS = 10_000
/** What is older says nothing of now. */
const OLD_MS = 60_000

interface Heard {
  readonly atMs: number
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

  /** The first two are milliseconds since 1970. What was heard before a clock was set does not count. */
  says(brokerMs: number, nowMs: number, monotonicMs: number): void {
    const heard = { atMs: monotonicMs, aheadMs: brokerMs - nowMs, shiftMs: nowMs - monotonicMs }
    const still = this.#heard.filter(({ shiftMs }) => Math.abs(shiftMs - heard.shiftMs) <= STEP_MS)
    const last = still.at(-1)
    const agrees = last !== undefined && Math.abs(last.aheadMs - heard.aheadMs) <= STEP_MS
    const before = agrees ? still.filter(({ aheadMs }) => Math.abs(aheadMs - heard.aheadMs) <= SET_MS) : still
    this.#heard = [...before, heard].slice(-LAST)
  }

  /** Milliseconds; negative where it is behind. Undefined: the broker has not said it twice of late, or never says it. */
  aheadMs(monotonicMs: number): number | undefined {
    const late = this.#heard.filter(({ atMs }) => monotonicMs - atMs <= OLD_MS)
    return late.length < LEAST ? undefined : Math.max(...late.map(({ aheadMs }) => aheadMs))
  }
}
