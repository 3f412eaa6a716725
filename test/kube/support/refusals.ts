/** What a real API server refuses: sooner or later, because its policies see objects through informers. */
import type { Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import type { KubeRequest } from './kube-request.ts'

export type EventuallyRefused = (
  t: Test,
  attempt: () => Promise<unknown>,
  message: RegExp,
  name: string,
) => Promise<void>

/**
 * Gives a check that repeats `attempt` until it is refused, for `deadlineMs` at most, and compares what the refusal
 * says. What the policies' informers have not seen yet is let through.
 */
export function refusedWithin(deadlineMs: number): EventuallyRefused {
  return async (t, attempt, message, name) => {
    let last = 'it was let through'
    await eventually(
      () =>
        attempt().then(
          () => false,
          (error: unknown) => (last = (error as Error).message),
        ),
      { deadlineMs, say: `a refusal: ${name}` },
    ).catch(() => undefined)
    t.match(last, message, name)
  }
}

/** Deletes for a trial. Throws what the API server says where it refuses, also that there is no such object. */
export async function dryDelete(as: KubeRequest, path: string): Promise<void> {
  const { status, text } = await as.raw('DELETE', `${path}?dryRun=All`)
  if (status >= 400) throw new Error(text)
}
