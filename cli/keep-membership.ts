/**
 * The Membership of a real cluster stays as long as the cluster is a member. Deleting it is refused, but whoever deletes
 * its CRD takes it along: the agent writes it again once the kind is served. Only `sealane leave` ends a membership, by
 * saying so on it first.
 */
import type { ClusterApi } from '../cluster/cluster-api.ts'
import { MEMBERSHIP_NAME, type Membership } from '../model/objects.ts'
import type { IdentityStore } from '../protocol/identity/identity-store.ts'
import { keptMembership } from '../protocol/join.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import type { KubeSite } from './kube-site.ts'

/** Each look is one small request to the API server. */
const LOOK_MS = 5000

export interface KeepMembershipInit {
  readonly cluster: ClusterApi
  readonly kube: Pick<KubeSite, 'hasMembership' | 'createMembership'>
  readonly identity: IdentityStore
}

/** Until the signal. Never rejects. */
export async function keepMembership(
  { clock, logger }: Pick<ComponentDeps, 'clock' | 'logger'>,
  { cluster, kube, identity }: KeepMembershipInit,
  signal: AbortSignal,
): Promise<void> {
  const memberships = cluster.cache('Membership')
  let told: string | undefined
  while (!signal.aborted) {
    try {
      const known = memberships.get(MEMBERSHIP_NAME)
      const wanted = known ?? (memberships.synced ? await fromIdentity(identity) : undefined)
      const isGone = wanted?.spec.phase === 'joined' && !(await kube.hasMembership(signal))
      // One that says that it leaves, and is gone then, has ended.
      if (isGone && wanted === (memberships.get(MEMBERSHIP_NAME) ?? wanted)) {
        await kube.createMembership(wanted, signal)
        logger.warn('the Membership was gone, and is there again', { cluster: wanted.spec.clusterId })
      }
      told = undefined
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      if (!signal.aborted && reason !== told) logger.warn('the Membership cannot be looked at', { reason })
      told = reason
    }
    await clock.sleep(LOOK_MS, signal).catch(() => undefined)
  }
}

async function fromIdentity(identity: IdentityStore): Promise<Membership | undefined> {
  const kept = await identity.read()
  return kept === undefined ? undefined : keptMembership(kept)
}
