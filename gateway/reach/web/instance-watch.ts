/**
 * Which processes answer at one address of a relay. A relay that starts again is another process from then on; an
 * address that leads back to an earlier one leads to several, and gateways there may never meet. Knows no sockets.
 */

/** Processes that are remembered, at most. */
const MOST_EARLIER = 8
/** A relay that hands its connections to its successor is gone by then. */
const CONFIRM_MS = 10_000
/** An address counts as one of several relays for so long after it was seen last. */
const LAPSE_MS = 10 * 60_000

export class InstanceWatch {
  #last: string | undefined
  #earlier: readonly string[] = []
  /** Another process answered first at this time, while a connection to `held` was open. */
  #other: { readonly held: string; readonly sinceMs: number } | undefined
  #untilMs = -Infinity

  /** This process has answered, while a connection to `held` is open at the address. Times are monotonic. */
  saw(instance: string | undefined, held: string | undefined, nowMs: number): void {
    if (instance === undefined) return
    const isBesides = this.#isBesides(instance, held, nowMs)
    if (this.#isBack(instance) || isBesides) this.#untilMs = nowMs + LAPSE_MS
  }

  /** Whether the address leads to several processes. */
  varies(nowMs: number): boolean {
    return nowMs < this.#untilMs
  }

  #isBesides(instance: string, held: string | undefined, nowMs: number): boolean {
    if (held === undefined) return false
    const before = this.#other?.held === held ? this.#other : undefined
    if (before !== undefined && nowMs - before.sinceMs < CONFIRM_MS) return false
    this.#other = instance === held ? undefined : { held, sinceMs: nowMs }
    return before !== undefined
  }

  #isBack(instance: string): boolean {
    if (instance === this.#last) return false
    const isBack = this.#earlier.includes(instance)
    if (this.#last !== undefined)
      this.#earlier = [...this.#earlier.filter((one) => one !== this.#last), this.#last].slice(-MOST_EARLIER)
    this.#last = instance
    return isBack
  }
}
