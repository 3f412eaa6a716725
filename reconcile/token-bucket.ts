/**
 * A token bucket that lends: a caller may take more tokens than are left, and then waits until they have been refilled.
 */
import type { Clock } from './clock.ts'

export interface TokenRate {
  /** Tokens that may be in use without a wait. */
  readonly burst: number
  readonly perSecond: number
}

export class TokenBucket {
  readonly #clock: Pick<Clock, 'monotonic'>
  #used = 0
  #atMs: number

  /** A new bucket is full. */
  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
    this.#atMs = clock.monotonic()
  }

  /** Returns how many tokens are in use. A debt beyond `most` is dropped. */
  used(perSecond: number, most = Infinity): number {
    const nowMs = this.#clock.monotonic()
    this.#used = Math.min(most, Math.max(0, this.#used - ((nowMs - this.#atMs) * perSecond) / 1000))
    this.#atMs = nowMs
    return this.#used
  }

  /**
   * Takes `count` tokens. Returns the milliseconds until at most `burst` are in use; 0 means no wait. A debt beyond
   * `most` tokens in use is dropped.
   */
  take(count: number, { burst, perSecond }: TokenRate, most = Infinity): number {
    this.#used = Math.min(most, this.used(perSecond) + count)
    return (Math.max(0, this.#used - burst) / perSecond) * 1000
  }

  /** Whether `count` tokens are left. Takes none. */
  canTake(count: number, { burst, perSecond }: TokenRate): boolean {
    return this.used(perSecond) + count <= burst
  }

  /** Takes `count` tokens if they are left. Returns whether they were. */
  takeIfLeft(count: number, rate: TokenRate): boolean {
    if (!this.canTake(count, rate)) return false
    this.take(count, rate)
    return true
  }
}
