/** Delays between attempts. They grow with the square of the failures up to a bound, with jitter. */
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
  /** Counts one failure and returns the milliseconds to wait: between half of the current delay and all of it. */
  next(): number {
    this.#failures += 1
    const full = Math.min(this.#init.maxMs, this.#init.minMs * this.#failures ** 2)
    return full / 2 + (full / 2) * this.#clock.random()
  }
  reset(): void {
    this.#failures = 0
  }
}

// Repeats an action until it succeeds, with increasing pauses.

interface UntilDoneInit {
  readonly clock: Clock
  readonly backoff: BackoffInit
  /** Called after each failure, before the next attempt. */
  readonly onFailure: (error: unknown) => void
}

/**
 * Returns true once `work` has succeeded, and false if the signal is aborted first: then there is no further attempt,
 * and a rejection of `work` is not a failure. Rejects only with what `onFailure` throws.
 */
export async function untilDone(
  work: () => Promise<void>,
  { clock, backoff: init, onFailure }: UntilDoneInit,
  signal: AbortSignal,
): Promise<boolean> {
  const backoff = new Backoff(clock, init)
  const attempt = async (): Promise<boolean> => {
    try {
      await work()
      return true
    } catch (error) {
      if (!signal.aborted) onFailure(error)
      return false
    }
  }
  while (!signal.aborted) {
    if (await attempt()) return true
    await clock.sleep(backoff.next(), signal).catch(() => undefined)
  }
  return false
}
