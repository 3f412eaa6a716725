/** Timeouts and reconnect delays of the two sessions. */
import { Backoff, type BackoffInit, type Clock } from '../../reconcile/reconcile.ts'
import { BrokerBusyError } from '../protocol.ts'

/** Calls `onOverdue` if an answer does not arrive in time. */
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

  /** Starts the timeout for the next answer. */
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

// Spreads the reconnects of members after an outage of the broker. The broker accepts about 200 members per second, so
// the delay grows with their number. A small clusterset does not notice it.

const PER_MEMBER_MS = 5
const MAX_SPREAD_MS = 5000
/** Jitter, because an overloaded broker may tell many members the same time. */
const JITTER = 0.2

/** Longest delay before the first attempt, in a clusterset with this number of members. */
export function reconnectSpreadMs(members: number): number {
  return Math.min(MAX_SPREAD_MS, members * PER_MEMBER_MS)
}

interface Lost {
  /** The stream was live when it was lost, so this is the first attempt. */
  readonly wasLive: boolean
  readonly error: unknown
  readonly backoffMs: number
  readonly spreadMs: number
}

/** Returns the delay before the next attempt, in milliseconds. */
export function reconnectMs({ wasLive, error, backoffMs, spreadMs }: Lost, clock: Pick<Clock, 'random'>): number {
  if (error instanceof BrokerBusyError) return error.comeBackMs * (1 + JITTER * clock.random())
  return wasLive ? Math.max(backoffMs, spreadMs * clock.random()) : backoffMs
}

/**
 * Computes the reconnect delays of one session. The delay grows with each attempt, and starts over after the session
 * was live.
 */
export class ReconnectPace {
  readonly #clock: Clock
  readonly #backoff: Backoff
  readonly #members: () => number
  #wasLive = false

  /** `members` returns the number of known members. */
  constructor(clock: Clock, init: BackoffInit, members: () => number) {
    this.#clock = clock
    this.#backoff = new Backoff(clock, init)
    this.#members = members
  }

  live(): void {
    this.#wasLive = true
    this.#backoff.reset()
  }

  /** Returns the delay, in milliseconds, after a stream has ended with `error`. */
  nextMs(error: unknown): number {
    const spreadMs = reconnectSpreadMs(this.#members())
    const lost = { wasLive: this.#wasLive, error, backoffMs: this.#backoff.next(), spreadMs }
    this.#wasLive = false
    return reconnectMs(lost, this.#clock)
  }
}
