/** Delays between attempts: grow with the square of the failures, up to a bound, with jitter. */
import type { Clock } from './clock.ts'

export interface BackoffInit {
  readonly minMs: number
  readonly maxMs: number
}

export class Backoff {
  readonly #clock: Clock
  readonly #init: BackoffInit
  #failures = 0
  constructor(clock: Clock, init: BackoffInit) {
    this.#clock = clock
    this.#init = init
  }
  /** Counts one failure and gives the milliseconds to wait: between half of the current delay and all of it. */
  next(): number {
    this.#failures += 1
    const full = Math.min(this.#init.maxMs, this.#init.minMs * this.#failures ** 2)
    return full / 2 + (full / 2) * this.#clock.random()
  }
  reset(): void {
    this.#failures = 0
  }
}
