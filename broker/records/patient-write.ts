/** A write that waits for the store: nothing is lost while the disk is full or away. */
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { type RecordLog, StateError, type Transaction } from '../log/record-log.ts'
import type { BrokerMetrics } from '../metrics.ts'

const RETRY_MS = 1000

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
      metrics.commitFailures.inc()
      logger.error('state not written, trying again', { reason: error.reason, why: error.message })
      await clock.sleep(RETRY_MS, signal)
    }
  }
}
