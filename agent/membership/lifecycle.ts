/**
 * The agent of a real cluster, from before its join until it has left: joins with the token that it finds, runs as a
 * member, joins anew where its certificate ended, and tells the broker when the cluster leaves.
 */
import { type ClusterApi, watchLeaving, whenMembership } from '../../kubeapi/kubeapi.ts'
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
import { joinWithToken, rejoinWhenEnded } from './join-with-token.ts'
import { type MembershipAccess, keepMembership } from './keep-membership.ts'
import { RefusalNote } from './refusal.ts'

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

// Leaving a real cluster's clusterset. Only the agent has the identity, so the agent tells the broker, as soon as the
// Membership asks for it. Only then every part takes itself out: what was cut off without a word would stay a member.
//
// joined ──leave-requested──► the broker is told ──► leaving ──► the identity goes
// leaving, said by `sealane leave --force` ──► the broker is told, or not ──► the identity goes

/**
 * Resolves once the broker was told and the identity is gone, or when somebody has taken back that this cluster leaves
 * after its parts had begun to; before that only with the signal.
 */
export async function reportLeaving(
  deps: ComponentDeps & { readonly api: ClusterApi },
  store: IdentityStore & JoinStore,
  signal: AbortSignal,
): Promise<void> {
  // Also one that is over before the next look: the other parts of this process have begun to leave.
  const leaving = watchLeaving(deps.api)
  try {
    await reportUntilDone(deps, store, { hasBegun: () => leaving.signal.aborted }, signal)
  } finally {
    leaving.close()
  }
}

async function reportUntilDone(
  deps: ComponentDeps & { readonly api: ClusterApi },
  store: IdentityStore & JoinStore,
  { hasBegun }: { readonly hasBegun: () => boolean },
  signal: AbortSignal,
): Promise<void> {
  const backoff = new Backoff(deps.clock, { minMs: 500, maxMs: 5000 })
  let isNoted = false
  const isTakenBack = ({ spec }: Membership): boolean => hasBegun() && spec.phase === 'joined'
  for (;;) {
    const membership = deps.api.cache('Membership').get(MEMBERSHIP_NAME)
    // A request that is taken back is none, nor is what stood in its way.
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
    deps.logger.warn('the broker could not be told that this cluster leaves', {
      reason: 'LeaveNotReported',
      why: problem,
    })
    isNoted = true
    await store.problem({ text: problem, reason: 'LeaveNotReported' }).catch(() => undefined)
    await deps.clock.sleep(backoff.next(), signal).catch(() => undefined)
  }
}

/** Its signal aborts when nobody wants this cluster to leave any more: a call that has not got through yet must not. */
function takenBack(api: ClusterApi): { readonly signal: AbortSignal; readonly close: () => void } {
  const back = new AbortController()
  const memberships = api.cache('Membership')
  const close = memberships.onChange(() => {
    const membership = memberships.get(MEMBERSHIP_NAME)
    if (membership !== undefined && !isToLeave(membership)) back.abort(new Error('it is taken back'))
  })
  return { signal: back.signal, close }
}

function isToLeave(membership: Membership): boolean {
  return membership.spec.phase === 'leaving' || isLeaveRequested(membership)
}

/** Undefined when the broker knows, or need not, and every part sees that this cluster leaves. */
async function reportAndLeave(
  deps: ComponentDeps & { readonly api: ClusterApi },
  store: IdentityStore,
  { signal, asking }: { readonly signal: AbortSignal; readonly asking: AbortSignal },
): Promise<string | undefined> {
  const problem = await report(deps, store, asking).catch((error: unknown) => messageOf(error))
  if (problem !== undefined) return isUnreported(deps.api) ? undefined : problem
  const membership = deps.api.cache('Membership').get(MEMBERSHIP_NAME)
  if (membership?.spec.phase !== 'joined') return undefined
  // Who asked for it takes that back, or need not any more.
  const { [LEAVE_REQUESTED_ANNOTATION]: _asked, ...annotations } = membership.metadata.annotations ?? {}
  const metadata = { ...membership.metadata, annotations }
  await deps.api.apply({ ...membership, metadata, spec: { ...membership.spec, phase: 'leaving' } }, signal)
  // What looks for an identity that was taken away looks at the same copy.
  await whenMembership(deps.api, ({ spec }) => spec.phase === 'leaving', signal)
  return undefined
}

/** Undefined when there is nothing more to tell. */
async function report(
  deps: ComponentDeps & { readonly api: ClusterApi },
  store: IdentityStore,
  signal: AbortSignal,
): Promise<string | undefined> {
  const identity = await store.read()
  if (identity === undefined) {
    // It goes when the broker has been told, and the Membership says so first.
    const isMember = deps.api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.phase === 'joined'
    return isMember ? `there is no identity in ${store.place}` : undefined
  }
  const done = await askToLeave(identity, deps, signal)
  deps.logger.info(
    done.t === 'left' ? 'the broker has withdrawn everything of this cluster' : 'the broker knew it before',
  )
  return undefined
}

function isUnreported(api: ClusterApi): boolean {
  return api.cache('Membership').get(MEMBERSHIP_NAME)?.metadata.annotations?.[LEAVE_UNREPORTED_ANNOTATION] === 'true'
}
