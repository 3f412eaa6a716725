/**
 * Runs the agent of a Kubernetes cluster from before its join until it has left: it joins with the stored token, runs
 * as a member, joins again after its certificate has expired, and notifies the broker when the cluster leaves.
 */
import type { Exposure } from '../../model/access/access.ts'
import { type ClusterApi, MembershipChanges, watchLeaving, whenMembership } from '../../kubeapi/kubeapi.ts'
import {
  type ClusterId,
  LEAVE_REQUESTED_ANNOTATION,
  LEAVE_UNREPORTED_ANNOTATION,
  MEMBERSHIP_NAME,
  type Membership,
  isLeaveRequested,
} from '../../model/model.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import { type IdentityStore, type JoinStore, askToLeave } from '../../protocol/membership/membership.ts'
import { Backoff } from '../../reconcile/reconcile.ts'
import { type ComponentDeps, messageOf } from '../../runtime/runtime.ts'
import { type JoiningDeps, joinWithToken, rejoinWhenEnded } from './join-with-token.ts'
import { type MembershipAccess, keepMembership } from './keep-membership.ts'
import { RefusalNote } from './refusal.ts'

export interface JoinAndRunInit {
  readonly cluster: ClusterId
  readonly facts: ClusterFacts
  readonly identity: IdentityStore & JoinStore
  readonly memberships: MembershipAccess
  /** See JoinWithTokenInit. */
  readonly exposure?: Exposure | undefined
  /** Runs as a member until the signal. */
  readonly runMember: (parts: MemberParts, signal: AbortSignal) => Promise<void>
}

export interface MemberParts {
  /** To be called with the reason if the broker refuses this member, and with undefined once it does not. */
  readonly onRefused: (reason: string | undefined) => void
  readonly membershipChanges: MembershipChanges
}

/** Resolves once the cluster has left, or after the signal. Rejects with the error that ends one of the parts. */
export async function joinAndRun(
  parts: ComponentDeps & { readonly api: ClusterApi },
  { cluster, facts, identity, memberships, exposure, runMember }: JoinAndRunInit,
  signal: AbortSignal,
): Promise<void> {
  const changes = new MembershipChanges(parts.api)
  const deps = { ...parts, changes }
  const joining = { cluster, facts, identity, store: identity, exposure }
  // From then on, another agent acts and reports.
  const forget = (): void => deps.status.report('joinRefused', () => undefined)
  signal.addEventListener('abort', forget, { once: true })
  await joinWithToken(deps, joining, signal)
  const stop = new AbortController()
  const until = AbortSignal.any([signal, stop.signal])
  const note = new RefusalNote(deps, identity, until)
  // A part that fails ends the other. The pod is restarted and continues from there.
  const part = (work: Promise<void>): Promise<void> =>
    work.catch((error: unknown) => (stop.abort(), Promise.reject(error as Error)))
  const memberParts = { onRefused: (reason: string | undefined) => note.onReason(reason), membershipChanges: changes }
  const member = [part(runMember(memberParts, until)), part(reportLeaving(deps, identity, until))]
  // The cluster has left, so no later join is to be expected.
  const left = Promise.all(member).then(() => stop.abort())
  const beside = [
    part(rejoinWhenEnded(deps, joining, until)),
    keepMembership(deps, { api: deps.api, kube: memberships, identity, exposure }, until),
  ]
  await Promise.all([left, ...beside])
}

// Leaves the clusterset of a Kubernetes cluster. Only the agent has the identity, so the agent notifies the broker as
// soon as the Membership requests it. Only then does every part remove its state: a cluster that disconnects without
// notice stays a member.
//
// joined ──leave-requested──► the broker is notified ──► leaving ──► the identity is removed
// leaving, set by `sealane leave --force` ──► the broker is notified, or not ──► the identity is removed

/**
 * Resolves once the broker was notified and the identity is removed, or if the request is withdrawn after the parts of
 * this process have begun to leave. Otherwise resolves only after the signal.
 */
export async function reportLeaving(
  deps: JoiningDeps,
  store: IdentityStore & JoinStore,
  signal: AbortSignal,
): Promise<void> {
  // Also notes a leaving phase that ends before the next check: the other parts of this process have begun to leave.
  const leaving = watchLeaving(deps.api)
  try {
    await reportUntilDone(deps, store, { hasBegun: () => leaving.signal.aborted }, signal)
  } finally {
    leaving.close()
  }
}

async function reportUntilDone(
  deps: JoiningDeps,
  store: IdentityStore & JoinStore,
  { hasBegun }: { readonly hasBegun: () => boolean },
  signal: AbortSignal,
): Promise<void> {
  const backoff = new Backoff(deps.clock, { minMs: 500, maxMs: 5000 })
  let isNoted = false
  const isTakenBack = ({ spec }: Membership): boolean => hasBegun() && spec.phase === 'joined'
  for (;;) {
    const membership = deps.api.cache('Membership').get(MEMBERSHIP_NAME)
    // A withdrawn request needs no problem report.
    if (isNoted && membership !== undefined && !isToLeave(membership)) {
      await store.problem(undefined).then(
        () => (isNoted = false),
        () => undefined,
      )
    }
    const found = await whenMembership(deps.api, (one) => isTakenBack(one) || isToLeave(one), signal)
    if (found === undefined || isTakenBack(found)) return
    const back = takenBack(deps.api)
    const asking = AbortSignal.any([signal, back.signal])
    const problem = await reportAndLeave(deps, store, { signal, asking }).catch((error: unknown) => messageOf(error))
    back.close()
    if (problem === undefined) return store.remove()
    if (back.signal.aborted) continue
    deps.logger.warn('cannot tell the broker that this cluster leaves', {
      reason: 'LeaveNotReported',
      why: problem,
    })
    isNoted = true
    await store.problem({ text: problem, reason: 'LeaveNotReported' }).catch(() => undefined)
    await deps.clock.sleep(backoff.next(), signal).catch(() => undefined)
  }
}

/**
 * Gives a signal that aborts when the request to leave is withdrawn: a pending call to the broker must then not go
 * through.
 */
function takenBack(api: ClusterApi): { readonly signal: AbortSignal; readonly close: () => void } {
  const back = new AbortController()
  const memberships = api.cache('Membership')
  const close = memberships.onChange(() => {
    const membership = memberships.get(MEMBERSHIP_NAME)
    if (membership !== undefined && !isToLeave(membership)) back.abort(new Error('leaving was cancelled'))
  })
  return { signal: back.signal, close }
}

function isToLeave(membership: Membership): boolean {
  return membership.spec.phase === 'leaving' || isLeaveRequested(membership)
}

/** Undefined once every part sees that this cluster leaves, and the broker knows it or need not. */
async function reportAndLeave(
  deps: JoiningDeps,
  store: IdentityStore,
  { signal, asking }: { readonly signal: AbortSignal; readonly asking: AbortSignal },
): Promise<string | undefined> {
  const problem = await report(deps, store, asking).catch((error: unknown) => messageOf(error))
  if (problem !== undefined) return isUnreported(deps.api) ? undefined : problem
  if (deps.api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.phase !== 'joined') return undefined
  const latest = await deps.changes.apply((membership) => {
    // Removes the request, since it is now fulfilled.
    const { [LEAVE_REQUESTED_ANNOTATION]: _asked, ...annotations } = membership.metadata.annotations ?? {}
    const metadata = { ...membership.metadata, annotations }
    return { ...membership, metadata, spec: { ...membership.spec, phase: 'leaving' } }
  }, signal)
  if (latest === undefined) return undefined
  // The copy of the Membership must show it, since the identity store uses the same copy to decide whether to restore
  // the identity.
  await whenMembership(deps.api, ({ spec }) => spec.phase === 'leaving', signal)
  return undefined
}

/** Undefined if there is nothing more to report. */
async function report(
  deps: ComponentDeps & { readonly api: ClusterApi },
  store: IdentityStore,
  signal: AbortSignal,
): Promise<string | undefined> {
  const identity = await store.read()
  if (identity === undefined) {
    // The identity is removed only after the broker was notified and the Membership is in phase leaving.
    const isMember = deps.api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.phase === 'joined'
    return isMember ? `there is no identity in ${store.place}` : undefined
  }
  const done = await askToLeave(identity, deps, signal)
  deps.logger.info(
    done.t === 'left'
      ? 'the broker has withdrawn the records of this cluster'
      : 'the broker had already removed this cluster',
  )
  return undefined
}

function isUnreported(api: ClusterApi): boolean {
  return api.cache('Membership').get(MEMBERSHIP_NAME)?.metadata.annotations?.[LEAVE_UNREPORTED_ANNOTATION] === 'true'
}
