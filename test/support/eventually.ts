/** Waits for a condition instead of a time. */
import { setTimeout as sleep } from 'node:timers/promises'

export interface EventuallyOptions {
  /** How long to keep trying. It catches a hang, and is never about speed. The default is 20,000. */
  readonly deadlineMs?: number
  /**
   * The pause between tries. By default it is 20 at first, and later a tenth of the time waited so far, at most 250: a
   * test that waits for a minute would otherwise call an API server two thousand times, and slow down what it waits
   * for.
   */
  readonly intervalMs?: number
  /** What is waited for; the error names it. */
  readonly say?: string
}

/** Six test files share two processors, so one file may get no processor time for some seconds. */
const DEADLINE_MS = 20_000
const FIRST_PAUSE_MS = 20
const LONGEST_PAUSE_MS = 250

/** Emulation makes everything take 5 to 40 times as long, and deadlines must not be about speed. */
export const SLOWNESS = process.env['SEALANE_GUEST'] === '1' ? 8 : 1

/**
 * Calls `check` until it neither throws nor returns false or undefined, and resolves with its result. After the
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
