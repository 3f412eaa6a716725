/** Waits for a condition instead of a time. */
import { setTimeout as sleep } from 'node:timers/promises'

export interface EventuallyOptions {
  /** How long to go on trying: it catches a hang, and is never about speed. Default 20,000. */
  readonly deadlineMs?: number
  /**
   * Pause between tries. Default: 20 at first, later a tenth of the time waited so far, at most 250. Who waits for a
   * minute would else ask an API server two thousand times, and take from what it waits for.
   */
  readonly intervalMs?: number
  /** What is waited for; the error names it. */
  readonly say?: string
}

/** Of two processors that six test files share, one file may get nothing for some seconds. */
const DEADLINE_MS = 20_000
const FIRST_PAUSE_MS = 20
const LONGEST_PAUSE_MS = 250

/** Under emulation everything takes 5 to 40 times as long; deadlines there must not be about speed. */
export const SLOWNESS = process.env['SEALANE_GUEST'] === '1' ? 8 : 1

/**
 * Calls `check` until it neither throws nor gives false or undefined, and resolves with what it gave. After the
 * deadline it rejects with the last error.
 */
export async function eventually<T>(
  check: () => T | Promise<T>,
  options: EventuallyOptions = {},
): Promise<Exclude<T, undefined | false>> {
  const { intervalMs, say = 'the condition' } = options
  const deadlineMs = (options.deadlineMs ?? DEADLINE_MS) * SLOWNESS
  const start = performance.now()
  let last: unknown
  for (;;) {
    try {
      const result = await check()
      if (result !== false && result !== undefined) return result as Exclude<T, undefined | false>
      last = undefined
    } catch (error) {
      last = error
    }
    const waitedMs = performance.now() - start
    if (waitedMs >= deadlineMs) break
    await sleep(intervalMs ?? Math.min(Math.max(waitedMs / 10, FIRST_PAUSE_MS), LONGEST_PAUSE_MS))
  }
  throw new Error(
    `${say} did not come true within ${deadlineMs} ms${last instanceof Error ? `: ${last.message}` : ''}`,
    { cause: last },
  )
}
