/**
 * Where the calls of this cluster go, for `sealane show traffic`: by the functions that balancing uses, from the same
 * objects. Pure.
 */
import { checkRemoteClusters, underlayAddresses } from '../../../model/addresses/addresses.ts'
import { usableClusters } from '../../../model/lanes/lanes.ts'
import {
  type Cluster,
  type ClusterTrafficPolicy,
  type EndpointSlice,
  type Gateway,
  LABEL_SERVICE_NAME,
  type Membership,
  type Node,
  type ServiceImport,
  type ServiceKey,
  type TrafficPolicy,
  serviceKey,
} from '../../../model/model.ts'
import {
  type AnyTrafficPolicy,
  type ClusterShare,
  type SharesWorld,
  TrafficPolicies,
  statedShares,
  trafficPolicyProblem,
} from '../../../model/services/services.ts'

/** The objects of this cluster that decide. */
export interface TrafficObjects {
  readonly membership: Membership
  readonly clusters: readonly Cluster[]
  readonly imports: readonly ServiceImport[]
  readonly slices: readonly EndpointSlice[]
  readonly gateways: readonly Gateway[]
  readonly nodes: readonly Node[]
  readonly policies: readonly TrafficPolicy[]
  readonly clusterPolicies: readonly ClusterTrafficPolicy[]
}

/** The share of one cluster in the calls to one service, as programs get it. `share` is in 1/10,000. */
export interface TrafficRow extends ClusterShare {
  readonly namespace: string
  readonly name: string
  /** The policy that counts. Absent: none does. */
  readonly policy?: { readonly kind: AnyTrafficPolicy['kind']; readonly name: string }
}

/** One row for each cluster of each service, or of those that `isWanted` chooses, by namespace, name and cluster. */
export function trafficRows(
  objects: TrafficObjects,
  isWanted: (namespace: string, name: string) => boolean,
): readonly TrafficRow[] {
  const world = sharesWorld(objects)
  const slices = slicesByService(objects.slices)
  const key = ({ metadata: { namespace = '', name } }: ServiceImport): ServiceKey => serviceKey(namespace, name)
  const wanted = objects.imports.filter(({ metadata: { namespace = '', name } }) => isWanted(namespace, name))
  return wanted
    .sort((a, b) => (key(a) < key(b) ? -1 : 1))
    .flatMap((service) => {
      const { namespace = '', name } = service.metadata
      const { shares, policy } = statedShares(service, slices.get(key(service)) ?? [], world)
      const by = policy === undefined ? {} : { policy: { kind: policy.kind, name: policy.metadata.name } }
      return shares.map((share) => ({ namespace, name, ...share, ...by }))
    })
}

function sharesWorld(objects: TrafficObjects): SharesWorld {
  const { membership, clusters, gateways, nodes, policies, clusterPolicies } = objects
  const { clusterId: self, clusterset } = membership.spec
  const own = clusters.find(({ spec }) => spec.id === self)
  // What a single node needs outside the lanes is known there only. It refuses members too.
  const validation = own && checkRemoteClusters({ own, clusters, underlay: underlayAddresses(nodes) })
  return {
    ...{ self, clusterset },
    clusters: new Map(clusters.map((cluster) => [cluster.spec.id, cluster])),
    reachable: usableClusters(self, gateways, validation),
    policies: new TrafficPolicies({ policies, clusterPolicies }),
  }
}

/** Slices of IPv4; of a service that has none, those of IPv6. Otherwise the pods with both would count twice. */
function slicesByService(slices: readonly EndpointSlice[]): ReadonlyMap<ServiceKey, readonly EndpointSlice[]> {
  const all = new Map<ServiceKey, EndpointSlice[]>()
  for (const slice of slices) {
    const { namespace = '', labels = {} } = slice.metadata
    const name = labels[LABEL_SERVICE_NAME]
    if (name === undefined) continue
    const key = serviceKey(namespace, name)
    const known = all.get(key)
    if (known === undefined) all.set(key, [slice])
    else known.push(slice)
  }
  for (const [key, both] of all) {
    const ofIpv4 = both.filter(({ addressType }) => addressType === 'IPv4')
    if (ofIpv4.length > 0) all.set(key, ofIpv4)
  }
  return all
}

/** `12.5 %`: percent with at most two decimals, as shares are in 1/10,000. */
export function shareText(share: number): string {
  return `${share / 100} %`
}

/** `TrafficPolicy web`, or `-`. */
export function policyText({ policy }: TrafficRow): string {
  return policy === undefined ? '-' : `${policy.kind} ${policy.name}`
}

/** What the rows do not say: the policies that are not valid. A node that knew an earlier version follows that one. */
export function invalidPolicies({ policies, clusterPolicies }: TrafficObjects): readonly string[] {
  return [...policies, ...clusterPolicies].flatMap((policy) => {
    const problem = trafficPolicyProblem(policy)
    if (problem === undefined) return []
    const { namespace, name } = policy.metadata
    const title = [...(namespace === undefined ? [] : [namespace]), name].join('/')
    return [`${policy.kind} ${title} is not valid, and not counted here: ${problem}`]
  })
}
