/** Waiting, for the two sessions. */
import { Backoff, type BackoffInit, type Clock } from '../../reconcile/reconcile.ts'
import { BrokerBusyError } from '../protocol.ts'

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

// When members come back to a broker that they have lost: it takes about 200 of them in a second, so they spread
// themselves over as much time as all of them need. A small clusterset does not notice.

const PER_MEMBER_MS = 5
const MAX_SPREAD_MS = 5000
/** Those who were told the same time do not come in one packet. */
const JITTER = 0.2

/** How long a member of so many waits at most before it tries for the first time. */
export function reconnectSpreadMs(members: number): number {
  return Math.min(MAX_SPREAD_MS, members * PER_MEMBER_MS)
}

interface Lost {
  /** The stream was live when it was lost: it is the first try. */
  readonly wasLive: boolean
  readonly error: unknown
  readonly backoffMs: number
  readonly spreadMs: number
}

/** How long to wait before the next try. */
export function reconnectMs({ wasLive, error, backoffMs, spreadMs }: Lost, clock: Pick<Clock, 'random'>): number {
  if (error instanceof BrokerBusyError) return error.comeBackMs * (1 + JITTER * clock.random())
  return wasLive ? Math.max(backoffMs, spreadMs * clock.random()) : backoffMs
}

/** The pace of one session: between two tries it waits longer each time, and starts over once it was live. */
export class ReconnectPace {
  readonly #clock: Clock
  readonly #backoff: Backoff
  readonly #members: () => number
  #wasLive = false

  /** `members`: how many there are, as far as is known. */
  constructor(clock: Clock, init: BackoffInit, members: () => number) {
    this.#clock = clock
    this.#backoff = new Backoff(clock, init)
    this.#members = members
  }

  live(): void {
    this.#wasLive = true
    this.#backoff.reset()
  }

  /** How long to wait after this end of a stream. */
  nextMs(error: unknown): number {
    const spreadMs = reconnectSpreadMs(this.#members())
    const lost = { wasLive: this.#wasLive, error, backoffMs: this.#backoff.next(), spreadMs }
    this.#wasLive = false
    return reconnectMs(lost, this.#clock)
  }
}
