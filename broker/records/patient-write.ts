/** A write that waits for the store: nothing is lost while the disk is full or away. */
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { type RecordLog, StateError, type Transaction } from '../log/record-log.ts'
import type { BrokerMetrics } from '../metrics.ts'

const RETRY_MS = 1000
/**
 * When an error was noted: a group that fails gives the same one to all that waited for it, hundreds of them, and a store
 * that is lost gives it to the next group as well.
 */
const noted = new WeakMap<StateError, number>()

export interface PatientWriteDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'commitFailures'>
}

/** Tries again while the store refuses, until the signal. Throws what `decide` throws. */
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
        logger.error('state not written, trying again', { reason: error.reason, why: error.message })
      }
      await clock.sleep(RETRY_MS, signal)
    }
  }
}
