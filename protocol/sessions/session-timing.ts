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

/** How a stream ended. `replaced`: this side ended it, to open another with other content at once. */
export type StreamEnd = { readonly t: 'replaced' } | { readonly t: 'failed'; readonly error: Error }

export interface KeptStream {
  readonly clock: Clock
  readonly retry: BackoffInit
  /** Returns the number of known members: as many may reconnect at once. */
  readonly members: () => number
  /** Runs one stream from its request to its end, and calls `onLive` when it is live. Never rejects. */
  readonly once: (onLive: () => void) => Promise<StreamEnd>
  /** Is called before the delay after a stream that failed. */
  readonly onFailed: (error: Error) => void
}

/**
 * Runs one stream after the other until the signal aborts. The delay after a failure grows with each attempt, and starts
 * over after the stream was live. Never rejects.
 */
export async function keepConnected(kept: KeptStream, signal: AbortSignal): Promise<void> {
  const { clock, retry, members, once, onFailed } = kept
  const backoff = new Backoff(clock, retry)
  const stopped = (): boolean => signal.aborted
  let wasLive = false
  const onLive = (): void => {
    wasLive = true
    backoff.reset()
  }
  while (!stopped()) {
    const end = await once(onLive)
    if (stopped()) return
    if (end.t === 'replaced') continue
    const { error } = end
    onFailed(error)
    const lost = { wasLive, error, backoffMs: backoff.next(), spreadMs: reconnectSpreadMs(members()) }
    wasLive = false
    await clock.sleep(reconnectMs(lost, clock), signal).catch(() => undefined)
  }
}
