/** Why this cluster is not reached by the IPv6 addresses that its pods have, for people. Pure. */
import { podFamilies } from '../../model/addresses/addressing.ts'
import { ipv6Among } from '../../model/addresses/ip.ts'
import { ipv6Clashes } from '../../model/addresses/ipv6-claims.ts'
import type { ClusterSpec } from '../../model/objects.ts'
import type { ClusterFacts } from '../../protocol/broker-api.ts'

export interface Ipv6World {
  /** What this cluster states about itself; undefined where only the broker knows. */
  readonly facts: Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs'> | undefined
  /** What the others know it as. */
  readonly own: ClusterSpec
  readonly others: readonly ClusterSpec[]
}

/** Undefined when nothing that is stated is left out. */
export function ipv6LeftOut({ facts, own, others }: Ipv6World): string | undefined {
  const stated = ipv6Among(facts?.podCIDRs ?? [])
  if (facts === undefined || stated.length === 0 || podFamilies(own).includes('IPv6')) return undefined
  const { podCIDRs, serviceCIDRs } = facts
  const all = [{ ...own, podCIDRs, serviceCIDRs }, ...others.filter(({ id }) => id !== own.id)]
  const clash = ipv6Clashes(all).get(own.id)
  // The other one's IPv6 may be left out itself, or the broker has refused what is stated.
  if (clash === undefined) return `the broker does not carry ${stated.join(', ')} of this cluster`
  return `${clash.own} of this cluster overlaps ${clash.other} of cluster ${clash.cluster}`
}
