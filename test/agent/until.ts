/** Waits until something reads as wanted, and says the difference when it never does. */
import type { Test } from 'tap'
import { eventually } from '../support/eventually.ts'

export async function until(t: Test, read: () => unknown, want: unknown, say: string): Promise<void> {
  await eventually(() => JSON.stringify(read()) === JSON.stringify(want), { deadlineMs: 8000, intervalMs: 5 }).catch(
    () => undefined,
  )
  t.strictSame(read(), want, say)
}
