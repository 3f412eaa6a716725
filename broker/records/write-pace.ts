/**
 * How much of the broker's one thread a member's writes may take: a start's worth at once, then a quarter. Who floods
 * waits for its acknowledgements, and the others' changes arrive between.
 */
import type { Clock } from '../../reconcile/clock.ts'
import { TokenBucket } from '../../reconcile/token-bucket.ts'
import type { Transaction } from '../log/record-log.ts'

export interface WritePaceInit {
  readonly burstMs: number
  /** Share of the time that may be used in the long run. */
  readonly share: number
  /** Taking a message off the wire costs as well. */
  readonly bytesPerMs: number
}

export const DEFAULT_WRITE_PACE: WritePaceInit = { burstMs: 1500, share: 0.25, bytesPerMs: 40_000 }
/** Nobody waits longer at a time: what was used once is not held against it for ever. */
const MAX_PAUSE_MS = 2000

export class WritePace {
  readonly #init: WritePaceInit
  /** Milliseconds of the thread. */
  readonly #bucket: TokenBucket

  constructor(clock: Clock, init: WritePaceInit = DEFAULT_WRITE_PACE) {
    this.#init = init
    this.#bucket = new TokenBucket(clock)
  }

  /** Takes what was used, and gives how long to pause before the next; 0: not at all. */
  used(ms: number, bytes: number): number {
    const { burstMs, share, bytesPerMs } = this.#init
    const perSecond = share * 1000
    this.#bucket.take(ms + bytes / bytesPerMs, { burst: burstMs, perSecond })
    const used = this.#bucket.used(perSecond, burstMs + MAX_PAUSE_MS * share)
    return Math.max(0, used - burstMs) / share
  }
}

export interface PacedTransaction {
  readonly clock: Clock
  readonly pace: WritePace
  readonly transact: <T>(decide: (tx: Transaction) => T) => Promise<T>
  readonly signal: AbortSignal
}

/**
 * Runs `decide` in a transaction, and pauses afterwards where it is due. Throws what `transact` throws, and the signal's
 * reason.
 */
export async function transactAtPace<T>(
  { clock, pace, transact, signal }: PacedTransaction,
  bytes: number,
  decide: (tx: Transaction) => T,
): Promise<T> {
  let tookMs = 0
  const result = await transact((tx) => {
    const begunMs = clock.monotonic()
    const decided = decide(tx)
    tookMs = clock.monotonic() - begunMs
    return decided
  })
  const pauseMs = pace.used(tookMs, bytes)
  if (pauseMs > 0) await clock.sleep(pauseMs, signal)
  return result
}
