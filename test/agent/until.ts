/** Waits until a function returns the wanted value, and reports the difference when it never does. */
import type { Test } from 'tap'
import { eventually } from '../support/eventually.ts'

export async function until(t: Test, read: () => unknown, want: unknown, say: string): Promise<void> {
  await eventually(() => JSON.stringify(read()) === JSON.stringify(want), { deadlineMs: 8000, intervalMs: 5 }).catch(
    () => undefined,
  )
  t.strictSame(read(), want, say)
}

/**
 * Waits until exactly these Events have arrived since the last call of reported(). An Event follows the change that it
 * is about.
 */
export async function untilReported(
  t: Test,
  site: { reported: () => string[] },
  want: readonly string[],
  say = 'told',
): Promise<void> {
  const heard: string[] = []
  const read = (): string[] => {
    heard.push(...site.reported())
    return heard
  }
  await until(t, read, want, say)
}
