/**
 * Rate limiter for a member's share of the broker's only thread: the work of a start at once, then a quarter of the
 * time. A member that floods waits for its acknowledgements, and changes of other members are processed in between.
 */
import type { Peer, PublishMessage } from '../../protocol/protocol.ts'
import { type Clock, TokenBucket } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { asksHeld, noteAnswered, takeHeld } from '../members/members.ts'
import type { WriteRules } from '../records/records.ts'
import { type RecordLog, StateError, type Transaction } from '../store/store.ts'

export interface WriteRateLimiterInit {
  readonly burstMs: number
  /** Share of the time that may be used in the long run. */
  readonly share: number
  /** Reading a message from the wire also takes time. */
  readonly bytesPerMs: number
}

export const DEFAULT_WRITE_RATE: WriteRateLimiterInit = { burstMs: 1500, share: 0.25, bytesPerMs: 40_000 }
/** Limit of one pause: past use is not counted against a member forever. */
const MAX_PAUSE_MS = 2000

export class WriteRateLimiter {
  readonly #init: WriteRateLimiterInit
  /** Milliseconds of the thread. */
  readonly #bucket: TokenBucket

  constructor(clock: Clock, init: WriteRateLimiterInit = DEFAULT_WRITE_RATE) {
    this.#init = init
    this.#bucket = new TokenBucket(clock)
  }

  /** Takes what was used and returns the pause before the next work in milliseconds. 0 if there is none. */
  used(ms: number, bytes: number): number {
    const { burstMs, share, bytesPerMs } = this.#init
    const rate = { burst: burstMs, perSecond: share * 1000 }
    return this.#bucket.take(ms + bytes / bytesPerMs, rate, burstMs + MAX_PAUSE_MS * share)
  }
}

export interface RateLimitedTransaction {
  readonly clock: Clock
  readonly writeLimiter: WriteRateLimiter
  readonly transact: <T>(decide: (tx: Transaction) => T) => Promise<T>
  readonly signal: AbortSignal
}

/** Runs `decide` in a transaction and then pauses if due. Throws what `transact` throws, and the signal's reason. */
export async function transactRateLimited<T>(
  { clock, writeLimiter, transact, signal }: RateLimitedTransaction,
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
  const pauseMs = writeLimiter.used(tookMs, bytes)
  if (pauseMs > 0) await clock.sleep(pauseMs, signal)
  return result
}

// Writes that wait for the store: no change is lost while the disk is full or unavailable.

const RETRY_MS = 1000
/**
 * When an error was logged. A failed group commit returns the same error to hundreds of callers, and a lost store
 * returns it to the next group too.
 */
const noted = new WeakMap<StateError, number>()

interface PatientWriteDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'commitFailures'>
}

/** Repeats the transaction while the store refuses it, until the signal. Throws what `decide` throws. */
export async function writePatiently<T>(
  { log, clock, logger, metrics }: PatientWriteDeps,
  decide: (tx: Transaction) => T,
  signal: AbortSignal,
): Promise<T> {
  for (;;) {
    try {
      return await log.transact(decide)
    } catch (error) {
      if (!(error instanceof StateError)) throw error
      const nowMs = clock.monotonic()
      if (!(nowMs - (noted.get(error) ?? -Infinity) < RETRY_MS)) {
        noted.set(error, nowMs)
        metrics.commitFailures.inc()
        logger.error('cannot write to the store; retrying', { reason: error.reason, why: error.message })
      }
      await clock.sleep(RETRY_MS, signal)
    }
  }
}

// What a member reports to hold, on its Publish stream.

interface ReceiveHeldInit {
  readonly peer: Peer
  readonly rules: WriteRules
  readonly clock: Clock
  readonly logger: Logger
  /** Shared by all streams of the member: these reports cost work as its records do. */
  readonly writeLimiter: WriteRateLimiter
  /** Runs as the member, as long as it is one. */
  readonly transact: <T>(decide: (tx: Transaction) => T) => Promise<T>
  readonly signal: AbortSignal
}

/**
 * Skips records that were not requested: an earlier stream requested them, and the member has reported them since.
 * Throws what `transact` throws, and the signal's reason.
 */
export async function receiveHeld(
  { records, last }: Extract<PublishMessage, { t: 'held' }>,
  bytes: number,
  { peer, rules, clock, logger, writeLimiter, transact, signal }: ReceiveHeldInit,
): Promise<void> {
  const { cluster } = peer
  let tookMs = 0
  const taken = await transact((tx) => {
    const nowMs = clock.now()
    if (!asksHeld(tx, cluster, nowMs)) return undefined
    if (last) noteAnswered(tx, cluster)
    const begunMs = clock.monotonic()
    const result = takeHeld(tx, records, { cluster, rules, nowMs })
    tookMs = clock.monotonic() - begunMs
    return result
  })
  const pauseMs = writeLimiter.used(tookMs, bytes)
  if (pauseMs > 0) await clock.sleep(pauseMs, signal)
  if (taken === undefined || records.length === 0) return
  const { services, members, left } = taken
  logger.info('a member holds what the backup lacks', { cluster, services, members: members.join(), left })
}
