/** A piece of work that must get done once: tried again and again, with growing pauses. */
import { Backoff, type BackoffInit } from './backoff.ts'
import type { Clock } from './clock.ts'

export interface UntilDoneInit {
  readonly clock: Clock
  readonly backoff: BackoffInit
  /** Called after each failure. The work is tried again. */
  readonly onFailure: (error: unknown) => void
}

/**
 * True once the work has ended well, false when the signal came first: then nothing more is tried, and what the work
 * rejects with is no failure. Rejects only with what `onFailure` throws.
 */
export async function untilDone(
  work: () => Promise<void>,
  { clock, backoff: pace, onFailure }: UntilDoneInit,
  signal: AbortSignal,
): Promise<boolean> {
  const backoff = new Backoff(clock, pace)
  const attempt = async (): Promise<boolean> => {
    try {
      await work()
      return true
    } catch (error) {
      if (!signal.aborted) onFailure(error)
      return false
    }
  }
  while (!signal.aborted) {
    if (await attempt()) return true
    await clock.sleep(backoff.next(), signal).catch(() => undefined)
  }
  return false
}
