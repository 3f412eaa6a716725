/** How a step of leaving prints, and how it waits. */
import type { Clock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { type Probe, waitUntil } from '../wait/wait-until.ts'

export interface LeaveClusterInit {
  /** Goes past what does not end in time. */
  readonly force: boolean
  /** For each step. */
  readonly timeoutMs: number
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/** One thing to wait for. With --force what does not end is named and passed by: then false. */
export async function step(init: LeaveClusterInit, what: string, look: Probe, given?: string): Promise<boolean> {
  const { timeoutMs, clock, signal, say, force } = init
  const hint = given ?? 'mend it and run this again, or go past it with --force'
  try {
    await waitUntil(look, { what, timeoutMs, clock, signal, say, hint })
    return true
  } catch (error) {
    if (!force || !(error instanceof UserError)) throw error
    say(`${error.message}; going on because of --force\n`)
    return false
  }
}
