/**
 * The agent of a real cluster, from before its join until it has left: joins with the token that it finds, runs as a
 * member, joins anew where its certificate ended, and tells the broker when the cluster leaves.
 */
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { ClusterFacts } from '../../protocol/broker-api.ts'
import type { IdentityStore } from '../../protocol/identity/identity-store.ts'
import type { JoinStore } from '../../protocol/join.ts'
import type { ComponentDeps } from '../../runtime/component.ts'
import { joinWithToken, rejoinWhenEnded } from './join-with-token.ts'
import { type MembershipAccess, keepMembership } from './membership/keep-membership.ts'
import { reportLeaving } from './membership/leave-by-agent.ts'
import { RefusalNote } from './membership/refusal-note.ts'

export interface JoinAndRunInit {
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
  readonly identity: IdentityStore & JoinStore
  readonly memberships: MembershipAccess
  /** Runs as a member until the signal. `onRefused` is called with the reason when the broker refuses this member. */
  readonly runMember: (onRefused: (reason: string | undefined) => void, signal: AbortSignal) => Promise<void>
}

/** Resolves once the cluster has left, or after the signal. Rejects with what ends one of the parts. */
export async function joinAndRun(
  deps: ComponentDeps & { readonly api: ClusterApi },
  { cluster, facts, identity, memberships, runMember }: JoinAndRunInit,
  signal: AbortSignal,
): Promise<void> {
  const joining = { cluster, facts, identity, store: identity }
  // Another agent acts from then on.
  const forget = (): void => deps.status.report('joinRefused', () => undefined)
  signal.addEventListener('abort', forget, { once: true })
  await joinWithToken(deps, joining, signal)
  const stop = new AbortController()
  const until = AbortSignal.any([signal, stop.signal])
  const note = new RefusalNote(deps, identity, until)
  // A part that fails ends the other: the pod is started anew, and goes on from there.
  const part = (work: Promise<void>): Promise<void> =>
    work.catch((error: unknown) => (stop.abort(), Promise.reject(error as Error)))
  const member = [part(runMember((reason) => note.onReason(reason), until)), part(reportLeaving(deps, identity, until))]
  // Nobody is left who could join anew.
  const left = Promise.all(member).then(() => stop.abort())
  const beside = [
    part(rejoinWhenEnded(deps, joining, until)),
    keepMembership(deps, { api: deps.api, kube: memberships, identity }, until),
  ]
  await Promise.all([left, ...beside])
}
