/**
 * The world in which the calls of a member are divided, from its objects as a command reads them: `sealane show traffic`
 * and `sealane explain` ask the function that balancing asks. Pure.
 */
import { clustersWithoutEgress } from '../../model/access/access.ts'
import { checkRemoteClusters, underlayAddresses } from '../../model/addresses/addresses.ts'
import { unansweredClusters, usableClusters } from '../../model/lanes/lanes.ts'
import type {
  Cluster,
  ClusterAccessPolicy,
  ClusterTrafficPolicy,
  EndpointSlice,
  Gateway,
  Membership,
  Node,
  TrafficPolicy,
} from '../../model/model.ts'
import { type SharesWorld, TrafficPolicies } from '../../model/services/services.ts'

export interface SharesObjects {
  readonly membership: Membership
  readonly clusters: readonly Cluster[]
  readonly gateways: readonly Gateway[]
  readonly nodes: readonly Node[]
  readonly policies: readonly TrafficPolicy[]
  readonly clusterPolicies: readonly ClusterTrafficPolicy[]
  readonly accessPolicies: readonly ClusterAccessPolicy[]
}

export function sharesWorld(objects: SharesObjects): SharesWorld {
  const { membership, clusters, gateways, nodes, policies, clusterPolicies } = objects
  const { clusterId: self, clusterset } = membership.spec
  const own = clusters.find(({ spec }) => spec.id === self)
  // What a single node needs outside the lanes is known there only. It refuses members too.
  const validation = own && checkRemoteClusters({ own, clusters, underlay: underlayAddresses(nodes) })
  return {
    ...{ self, clusterset },
    clusters: new Map(clusters.map((cluster) => [cluster.spec.id, cluster])),
    reachable: usableClusters(self, gateways, validation),
    unanswered: unansweredClusters(gateways),
    policies: new TrafficPolicies({ policies, clusterPolicies }),
    withoutEgress: clustersWithoutEgress(objects.accessPolicies, clusters, self),
  }
}

/** The slices of IPv4; if there are none, those of IPv6. Otherwise the pods with both would count twice. */
export function ofOneFamily(slices: readonly EndpointSlice[]): readonly EndpointSlice[] {
  const ofIpv4 = slices.filter(({ addressType }) => addressType === 'IPv4')
  return ofIpv4.length > 0 ? ofIpv4 : slices
}
