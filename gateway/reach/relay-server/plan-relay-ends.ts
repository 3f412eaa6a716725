/**
 * Who may use the relay of a gateway: the gateways of all members with which this one may have links, as their Endpoints
 * name them. A relay that learns of an end that is gone ends its bindings at once. Pure.
 */
import type { Endpoint } from '../../../model/model.ts'
import type { CableRules } from '../../cable/cable.ts'
import type { RelayEnd } from './relay-events.ts'

/** Lane numbers are 0 to 7, and each may have a next identity. A member with more ends has the first of them. */
const MOST_ENDS_OF_MEMBER = 16

/**
 * Each present identity, and each that an end is about to take, so that a rotation interrupts nothing. If several
 * Endpoints state one identity, it belongs to that with the first name, as it does for links (check-remotes.ts), and
 * a present identity precedes an announced one. Endpoints of which the cable can make nothing are left out,
 * and so are those of members whose Cluster object was refused, or has not arrived: the topology may keep them away.
 */
export function planRelayEnds(
  endpoints: readonly Endpoint[],
  accepted: ReadonlySet<string>,
  rules: Pick<CableRules, 'identityOf' | 'nextIdentityOf' | 'endpointProblem'>,
): readonly RelayEnd[] {
  const sorted = endpoints
    .filter((one) => accepted.has(one.spec.cluster) && rules.endpointProblem(one) === undefined)
    .sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
  const owners = new Map<string, string>()
  const counts = new Map<string, number>()
  const present = (one: Endpoint): string | undefined => rules.identityOf(one)
  const announced = (one: Endpoint): string | undefined => rules.nextIdentityOf(one)
  for (const identityOf of [present, announced]) {
    for (const endpoint of sorted) {
      const identity = identityOf(endpoint)
      const { cluster } = endpoint.spec
      const count = counts.get(cluster) ?? 0
      if (identity === undefined || owners.has(identity) || count >= MOST_ENDS_OF_MEMBER) continue
      owners.set(identity, cluster)
      counts.set(cluster, count + 1)
    }
  }
  return [...owners].map(([identity, member]) => ({ member, identity }))
}
