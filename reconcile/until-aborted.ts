/** Waiting for a signal, and work that has until a deadline. */
import type { Clock } from './clock.ts'

export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

/** The signal that `work` gets is aborted after so many milliseconds. */
export async function withDeadline<T>(clock: Clock, ms: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const late = new AbortController()
  const cancel = clock.setTimer(ms, () => late.abort(new Error(`no answer within ${ms / 1000} s`)))
  try {
    return await work(late.signal)
  } finally {
    cancel()
  }
}
