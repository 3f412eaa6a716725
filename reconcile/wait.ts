/** Waits that a signal can end, and work with a deadline. */
import type { Clock } from './clock.ts'

/** Resolves when the signal is aborted. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

/**
 * For an action that observes the signal itself: returns true if it ended by itself, false if the signal ended it.
 * Rethrows other errors.
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
 * For work that does not observe a signal, such as a credential plugin that hangs: settles like the promise, unless the
 * signal is aborted first. Then it rejects with the signal's reason, and the work continues.
 */
export function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error)
    if (signal.aborted) onAbort()
    signal.addEventListener('abort', onAbort, { once: true })
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort))
  })
}

/** Runs `work` with a signal that is aborted after `ms` milliseconds. */
export async function withDeadline<T>(clock: Clock, ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController()
  const cancel = clock.setTimer(ms, () => late.abort(new Error(`no answer within ${ms / 1000} s`)))
  try {
    return await work(late.signal)
  } finally {
    cancel()
  }
}

/** A sleep that another caller can end early, when there is work. Only one caller may sleep at a time. */
export class WakeableSleep {
  readonly #clock: Clock
  #wake: () => void = () => undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Ends the pending sleep; does nothing if there is none. */
  wake(): void {
    this.#wake()
  }

  /** Resolves after `ms` or on wake(). Rejects with the signal's reason. */
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

/** The shortest delay: a time in the past would otherwise cause a busy loop. */
const SOONEST_MS = 20

/** One timer for the earliest of several requested times. */
export class WakeTimer {
  readonly #clock: Clock
  readonly #wake: () => void
  #pending: { readonly atMs: number; readonly cancel: () => void } | undefined

  constructor(clock: Clock, wake: () => void) {
    this.#clock = clock
    this.#wake = wake
  }

  /** Wakes at that time (milliseconds of the monotonic clock), or earlier if an earlier time is already set. */
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
