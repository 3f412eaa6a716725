/** Waits for a condition instead of a time. */
import { setTimeout as sleep } from 'node:timers/promises'

export interface EventuallyOptions {
  /** How long to go on trying. Default 5,000. */
  readonly deadlineMs?: number
  /** Pause between tries. Default 20. */
  readonly intervalMs?: number
  /** What is waited for; the error names it. */
  readonly say?: string
}

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
  const { intervalMs = 20, say = 'the condition' } = options
  const deadlineMs = (options.deadlineMs ?? 5000) * SLOWNESS
  const end = performance.now() + deadlineMs
  let last: unknown
  for (;;) {
    try {
      const result = await check()
      if (result !== false && result !== undefined) return result as Exclude<T, undefined | false>
      last = undefined
    } catch (error) {
      last = error
    }
    if (performance.now() >= end) break
    await sleep(intervalMs)
  }
  throw new Error(
    `${say} did not come true within ${deadlineMs} ms${last instanceof Error ? `: ${last.message}` : ''}`,
    { cause: last },
  )
}
