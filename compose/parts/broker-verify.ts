/** A look through a broker's state or a backup, apart from the broker itself, which brings a server along. */
import { verifyBackup, verifyState } from '../../broker/state/verify-state.ts'
import type { Verified } from '../../broker/verify/verify-store.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { withHint } from './broker-store.ts'

export type { Finding } from '../../broker/verify/findings.ts'
export type { Verified } from '../../broker/verify/verify-store.ts'

/** Throws StateError where there is nothing, or it cannot be read at all. */
export async function verifyWhat(what: { readonly state: string; readonly backup?: string }): Promise<Verified> {
  const nowMs = new SystemClock().now()
  if (what.backup !== undefined) return verifyBackup(what.backup, nowMs)
  return verifyState(what.state, nowMs).catch(withHint)
}
