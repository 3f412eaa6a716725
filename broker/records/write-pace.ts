/**
 * How much of the broker's one thread a member's writes may take: a start's worth at once, then a quarter. Who floods
 * waits for its acknowledgements, and the others' changes arrive between.
 */
import type { Clock } from '../../reconcile/clock.ts'
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
  readonly #clock: Clock
  readonly #init: WritePaceInit
  #leftMs: number
  #atMs: number

  constructor(clock: Clock, init: WritePaceInit = DEFAULT_WRITE_PACE) {
    this.#clock = clock
    this.#init = init
    this.#leftMs = init.burstMs
    this.#atMs = clock.monotonic()
  }

  /** Takes what was used, and gives how long to pause before the next; 0: not at all. */
  used(ms: number, bytes: number): number {
    const { burstMs, share, bytesPerMs } = this.#init
    const now = this.#clock.monotonic()
    const refilled = Math.min(burstMs, this.#leftMs + (now - this.#atMs) * share)
    this.#atMs = now
    this.#leftMs = Math.max(-MAX_PAUSE_MS * share, refilled - ms - bytes / bytesPerMs)
    return this.#leftMs >= 0 ? 0 : -this.#leftMs / share
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
