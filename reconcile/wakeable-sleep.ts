/** A sleep that somebody may end early, because there is something to do. One sleeps at a time. */
import type { Clock } from './clock.ts'
import { orAborted } from './until-aborted.ts'

export class WakeableSleep {
  readonly #clock: Clock
  #wake: () => void = () => undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Ends the sleep under way; where nobody sleeps, nothing. */
  wake(): void {
    this.#wake()
  }

  /** After `ms`, or wake(). Rejects with the signal's reason. */
  async sleep(ms: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<undefined>()
    const cancel = this.#clock.setTimer(ms, () => resolve(undefined))
    this.#wake = () => resolve(undefined)
    try {
      await orAborted(promise, signal)
    } finally {
      cancel()
      this.#wake = () => undefined
    }
  }
}
