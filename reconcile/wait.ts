/** Waits that a signal may end, and work that has until a deadline. */
import type { Clock } from './clock.ts'

/** Resolves with the signal. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

/**
 * For an action that obeys the signal itself: true when it ended by itself, false when the signal ended it. Throws what
 * else it throws.
 */
export async function unlessAborted(action: Promise<unknown>, signal: AbortSignal): Promise<boolean> {
  try {
    await action
    return true
  } catch (error) {
    if (signal.aborted) return false
    throw error
  }
}

/**
 * For work that obeys no signal, such as a credential plugin that hangs: as the promise, unless the signal comes first;
 * then rejects with its reason, and the work itself goes on.
 */
export function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}

/** The signal that `work` gets is aborted after so many milliseconds. */
export async function withDeadline<T>(clock: Clock, ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController()
  const cancel = clock.setTimer(ms, () => late.abort(new Error(`no answer within ${ms / 1000} s`)))
  try {
    return await work(late.signal)
  } finally {
    cancel()
  }
}

/** A sleep that somebody may end early, because there is something to do. One sleeps at a time. */
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

/** Not sooner than this: a time in the past would otherwise make a busy loop. */
const SOONEST_MS = 20

/** One timer that keeps the earliest of the times it was asked for. */
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
