/** What a cluster is in its clusterset: a plain site knows it by its identity, a real cluster by its Membership. */
import type { ClusterApi } from '../kubeapi/cluster-api.ts'
import { whenMembership } from '../kubeapi/membership.ts'
import { parseClusterId } from '../model/ids.ts'
import { MEMBERSHIP_NAME, type Membership } from '../model/objects.ts'
import type { IdentityStore } from '../protocol/identity/identity-store.ts'
import { UserError } from '../runtime/user-error.ts'
import type { MembershipInfo } from './run.ts'

/**
 * Throws UserError when this site has not joined, IdentityFileError when what is there cannot be read. `alsoTry` ends
 * the advice for a site that has not joined.
 */
export async function membershipByIdentity(identity: IdentityStore, alsoTry = ''): Promise<MembershipInfo> {
  const found = await identity.read()
  if (found === undefined) {
    const hint = `first: sealane join --token-file FILE${alsoTry}`
    throw new UserError('this site has not joined a clusterset', { hint })
  }
  const { cluster, observedAddress, observedCounts } = found
  // An identity of an earlier release says nothing: then the gateway decides alone.
  return observedCounts === false ? { cluster } : { cluster, observedAddress }
}

/** Waits for the Membership that the agent makes when it joins. Rejects with the signal's reason. */
export async function membershipByObject(api: ClusterApi, signal: AbortSignal): Promise<MembershipInfo> {
  const found = await whenMembership(api, () => true, signal)
  if (found === undefined) throw signal.reason as Error
  return membershipOf(found)
}

/** At the signal too. */
export function whenNotLeaving(api: Pick<ClusterApi, 'cache'>, signal: AbortSignal): Promise<void> {
  const memberships = api.cache('Membership')
  return new Promise((resolve) => {
    const look = (): void => {
      const isLeaving = memberships.get(MEMBERSHIP_NAME)?.spec.phase === 'leaving'
      if (isLeaving && !signal.aborted) return
      stop()
      signal.removeEventListener('abort', look)
      resolve()
    }
    const stop = memberships.onChange(look)
    signal.addEventListener('abort', look, { once: true })
    look()
  })
}

function membershipOf({ spec }: Membership): MembershipInfo {
  const { clusterId, observedAddress } = spec
  return { cluster: parseClusterId(clusterId), ...(observedAddress === undefined ? {} : { observedAddress }) }
}
