/**
 * The Membership of a real cluster stays as long as the cluster is a member. Deleting it is refused, but a user who
 * deletes its CRD takes it along: the agent writes it again once the kind is served. Only `sealane leave` ends a
 * membership, by saying so on it first.
 */
import type { ClusterApi, ObjectCache } from '../../../kubeapi/cluster-api.ts'
import { MEMBERSHIP_NAME, type Membership } from '../../../model/objects.ts'
import type { IdentityStore } from '../../../protocol/identity/identity-store.ts'
import { keptMembership } from '../../../model/membership.ts'
import type { ComponentDeps } from '../../../runtime/component.ts'
import type { Logger } from '../../../runtime/logging/logger.ts'

/** Each look is one small request to the API server. */
const LOOK_MS = 5000

/** Past all caches. */
export interface MembershipAccess {
  /** As the server has it now. Throws ClusterApiError, also where the kind is not served. */
  hasMembership(signal: AbortSignal): Promise<boolean>
  /** Fails where there is one. Throws ClusterApiError. */
  createMembership(membership: Membership, signal: AbortSignal): Promise<void>
}

export interface KeepMembershipInit {
  readonly api: ClusterApi
  readonly kube: MembershipAccess
  readonly identity: IdentityStore
}

/** Until the signal. Never rejects. */
export async function keepMembership(
  { clock, logger }: Pick<ComponentDeps, 'clock' | 'logger'>,
  init: KeepMembershipInit,
  signal: AbortSignal,
): Promise<void> {
  let reported: string | undefined
  while (!signal.aborted) {
    const problem = await look(init, logger, signal).then(
      () => undefined,
      (error: unknown) => (signal.aborted ? reported : String(error)),
    )
    if (problem !== undefined && problem !== reported) {
      logger.warn('the Membership is not looked at', { reason: 'RoundFailed', why: problem })
    }
    reported = problem
    await clock.sleep(LOOK_MS, signal).catch(() => undefined)
  }
}

async function look({ api, kube, identity }: KeepMembershipInit, logger: Logger, signal: AbortSignal): Promise<void> {
  const wanted = await wantedMembership(api.cache('Membership'), identity)
  if (wanted?.spec.phase !== 'joined' || (await kube.hasMembership(signal))) return
  await kube.createMembership(wanted, signal)
  const { clusterId: cluster } = wanted.spec
  logger.warn('the Membership was gone, and is there again', { reason: 'MembershipRestored', cluster })
}

/** As the broker said last; else as the identity has it, once it is certain that the broker has said nothing. */
async function wantedMembership(
  memberships: ObjectCache<Membership>,
  identity: IdentityStore,
): Promise<Membership | undefined> {
  const known = memberships.get(MEMBERSHIP_NAME)
  if (known !== undefined || !memberships.synced) return known
  const kept = await identity.read()
  return kept === undefined ? undefined : keptMembership(kept)
}
