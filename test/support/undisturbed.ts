/** Times of the real world, apart from times at which the machine had no time for us. */
import type { Test } from 'tap'
import { AGAIN } from './again.ts'

const TICK_MS = 10
/** A timer that comes so late has been kept waiting by other work, or by the whole machine. */
const LATE_MS = 50
const TRIES = 4

/** Runs what is timed, and nothing else. */
export type Timed = <R>(work: () => Promise<R>) => Promise<R>

/**
 * Calls `measure` and gives its result. Where the result is not `good` and this process was kept waiting while the work
 * ran that is timed, it is measured again, three times at most. What is not good on a machine that had time for us is
 * given as it is.
 */
export async function undisturbed<T>(
  t: Test,
  measure: (timed: Timed) => Promise<T>,
  good: (result: T) => boolean,
): Promise<T> {
  for (let left = TRIES - 1; ; left -= 1) {
    let lateMs = 0
    const result = await measure(async (work) => {
      const watch = watchLateness()
      try {
        return await work()
      } finally {
        watch.stop()
        lateMs = Math.max(lateMs, watch.latest())
      }
    })
    if (good(result) || left === 0 || lateMs < LATE_MS) return result
    t.comment(`${AGAIN} ${JSON.stringify(result)}, while a timer came ${Math.round(lateMs)} ms late`)
  }
}

function watchLateness(): { readonly latest: () => number; readonly stop: () => void } {
  let latest = 0
  let last = performance.now()
  const timer = setInterval(() => {
    const now = performance.now()
    latest = Math.max(latest, now - last - TICK_MS)
    last = now
  }, TICK_MS)
  return { latest: () => latest, stop: () => clearInterval(timer) }
}
