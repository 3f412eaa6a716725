/** Waits until something reads as wanted, and says the difference when it never does. */
import type { Test } from 'tap'
import { eventually } from '../support/eventually.ts'

export async function until(t: Test, read: () => unknown, want: unknown, say: string): Promise<void> {
  await eventually(() => JSON.stringify(read()) === JSON.stringify(want), { deadlineMs: 8000, intervalMs: 5 }).catch(
    () => undefined,
  )
  t.strictSame(read(), want, say)
}

/** Waits until somebody has got just that since reported() was last asked; Events follow what they are about. */
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
