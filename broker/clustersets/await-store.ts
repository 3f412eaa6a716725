/** A broker may start before the etcd of its store, or while that is away: it waits a while instead of ending. */
import { Backoff } from '../../reconcile/backoff.ts'
import type { Clock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { StateError } from '../log/record-log.ts'

/** Then it ends, and whoever started it reads why: the address may be a wrong one. */
export const AWAIT_STORE_MS = 60_000
const PACE = { minMs: 250, maxMs: 5000 }

export interface AwaitStoreDeps {
  readonly clock: Clock
  readonly logger: Logger
  /** Told what each try ended with, until one ends well. */
  readonly onAway: (why: string) => void
}

/**
 * What `open` gives. While it rejects with a StateError of code Unreachable it is tried again, for AWAIT_STORE_MS; it
 * rejects with any other error at once. Rejects with the signal's reason when that comes first.
 */
export async function awaitStore<T>(
  open: () => Promise<T>,
  { clock, logger, onAway }: AwaitStoreDeps,
  signal: AbortSignal,
): Promise<T> {
  const end = clock.monotonic() + AWAIT_STORE_MS
  const pace = new Backoff(clock, PACE)
  let last: string | undefined
  for (;;) {
    try {
      return await open()
    } catch (error) {
      const isAway = error instanceof StateError && error.code === 'Unreachable'
      if (signal.aborted || !isAway || clock.monotonic() >= end) throw error
      onAway(error.message)
      if (error.message !== last)
        logger.warn('the store does not answer, trying again', { reason: error.reason, why: error.message })
      last = error.message
    }
    await clock.sleep(pace.next(), signal)
  }
}
