/** One timer that keeps the earliest of the times it was asked for. */
import type { Clock } from './clock.ts'

/** Not sooner than this: a time in the past would otherwise make a busy loop. */
const SOONEST_MS = 20

export class WakeTimer {
  readonly #clock: Clock
  readonly #wake: () => void
  #pending: { readonly atMs: number; readonly cancel: () => void } | undefined

  constructor(clock: Clock, wake: () => void) {
    this.#clock = clock
    this.#wake = wake
  }

  /** Wakes at that time (milliseconds of the monotonic clock), or earlier where an earlier time is already set. */
  at(atMs: number): void {
    if (this.#pending !== undefined && this.#pending.atMs <= atMs) return
    this.#pending?.cancel()
    const cancel = this.#clock.setTimer(Math.max(SOONEST_MS, atMs - this.#clock.monotonic()), () => {
      this.#pending = undefined
      this.#wake()
    })
    this.#pending = { atMs, cancel }
  }

  close(): void {
    this.#pending?.cancel()
    this.#pending = undefined
  }
}
