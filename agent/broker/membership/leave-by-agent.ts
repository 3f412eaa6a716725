/**
 * Leaving a real cluster's clusterset. Only the agent has the identity, so the agent tells the broker, as soon as the
 * Membership says `leaving`. `sealane leave` waits for the identity to be gone.
 */
import type { ClusterApi } from '../../../kubeapi/cluster-api.ts'
import { whenMembership } from '../../../kubeapi/membership.ts'
import { LEAVE_UNREPORTED_ANNOTATION } from '../../../model/membership.ts'
import { MEMBERSHIP_NAME } from '../../../model/objects.ts'
import type { IdentityStore } from '../../../protocol/identity/identity-store.ts'
import type { JoinStore } from '../../../protocol/join.ts'
import { askToLeave } from '../../../protocol/leave.ts'
import { Backoff } from '../../../reconcile/backoff.ts'
import type { ComponentDeps } from '../../../runtime/component.ts'
import { messageOf } from '../../../runtime/thrown.ts'

/** Resolves once the broker was told and the identity is gone; before that only with the signal. */
export async function reportLeaving(
  deps: ComponentDeps & { readonly api: ClusterApi },
  store: IdentityStore & JoinStore,
  signal: AbortSignal,
): Promise<void> {
  const backoff = new Backoff(deps.clock, { minMs: 500, maxMs: 5000 })
  await whenMembership(deps.api, ({ spec }) => spec.phase === 'leaving', signal)
  while (!signal.aborted) {
    const problem = await report(deps, store, signal).catch((error: unknown) => messageOf(error))
    if (problem === undefined || isUnreported(deps.api)) return store.remove()
    deps.logger.warn('the broker could not be told that this cluster leaves', {
      reason: 'LeaveNotReported',
      why: problem,
    })
    await store.problem({ text: problem }).catch(() => undefined)
    await deps.clock.sleep(backoff.next(), signal).catch(() => undefined)
  }
}

/** Undefined when there is nothing more to tell. */
async function report(deps: ComponentDeps, store: IdentityStore, signal: AbortSignal): Promise<string | undefined> {
  const identity = await store.read()
  if (identity === undefined) return undefined
  const done = await askToLeave(identity, deps, signal)
  deps.logger.info(
    done.t === 'left' ? 'the broker has withdrawn everything of this cluster' : 'the broker knew it before',
  )
  return undefined
}

function isUnreported(api: ClusterApi): boolean {
  return api.cache('Membership').get(MEMBERSHIP_NAME)?.metadata.annotations?.[LEAVE_UNREPORTED_ANNOTATION] === 'true'
}
