/** Waiting, for the two sessions. */
import type { Clock } from '../../reconcile/clock.ts'

/** Ends a stream on which an answer is overdue. */
export class Watchdog {
  readonly #clock: Clock
  readonly #ms: number
  readonly #onOverdue: () => void
  #cancel: (() => void) | undefined

  constructor(clock: Clock, ms: number, onOverdue: () => void) {
    this.#clock = clock
    this.#ms = ms
    this.#onOverdue = onOverdue
  }

  /** From now on an answer is due. */
  expect(): void {
    this.stop()
    this.#cancel = this.#clock.setTimer(this.#ms, this.#onOverdue)
  }

  answered(): void {
    this.stop()
  }

  stop(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }
}

/** Resolves with the promise or when the signal aborts, whichever comes first. */
export function orAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => {
    const done = (): void => {
      signal.removeEventListener('abort', done)
      resolve()
    }
    signal.addEventListener('abort', done, { once: true })
    void promise.then(done)
  })
}
