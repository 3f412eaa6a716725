/** Which pods this node has, from its Node and its kernel: what it reports to the others, and balances by. Pure. */
import { plannedFamilies } from '../../model/addresses/addressing.ts'
import { type Family, type Prefix, formatPrefix } from '../../model/addresses/ip.ts'
import { MAX_POD_RANGES, podPrefixes, specRanges } from '../../model/addresses/pod-ranges.ts'
import { aggregate, comparePrefixes, isInside } from '../../model/addresses/prefix-set.ts'
import type { Cluster, Node } from '../../model/objects.ts'
import { type KernelFacts, deviceOf } from '../node-facts.ts'
import { overlayNodes } from './plan-nodes.ts'
import { planLocalRanges } from './plan-local-ranges.ts'

/** Of one family. */
export interface OwnRanges {
  /** For RouteAgent.status: pods and the node's own addresses inside the pod CIDRs. */
  readonly ranges: readonly Prefix[]
  /** Networks among them, which do not change with each pod; of a node without pods, those of its Node. */
  readonly networks: readonly Prefix[]
  /** Pods have addresses outside these networks, one by one. */
  readonly scattered: boolean
  /** How many ranges there would be more. */
  readonly cut: number
}

export interface OwnRangesInit {
  readonly facts: KernelFacts
  /** Node.spec.podCIDRs of this node, inside the cluster's. */
  readonly spec: readonly Prefix[]
  /** Of the cluster, of one family. */
  readonly podCIDRs: readonly Prefix[]
  readonly underlay: string
  /** How many ranges may be reported. */
  readonly limit?: number
}

/**
 * The Node's ranges count where the kernel shows pods in them, and no others: a node without pods yet may have them.
 * Where the kernel shows pods outside, or blocks inside, the CNI allocates by itself and the Node's ranges do not
 * count. Where it shows none, the Node's ranges are not reported: others may have been given these addresses.
 */
export function ownRanges({ facts, spec, podCIDRs, underlay, limit = MAX_POD_RANGES }: OwnRangesInit): OwnRanges {
  const kernel = planLocalRanges({ ...facts, podCIDRs, underlay })
  const empty = kernel.networks.length === 0 && kernel.pods.length === 0
  const agreed =
    kernel.pods.every((pod) => isInside(pod, spec)) &&
    kernel.networks.every((network) => spec.some((range) => comparePrefixes(range, network) === 0))
  const networks = aggregate(agreed ? spec : kernel.networks)
  const pods = kernel.pods.filter((prefix) => !isInside(prefix, networks))
  const all = aggregate([...(empty ? [] : networks), ...pods, ...kernel.addresses])
  const ranges = [...all].sort((a, b) => a.length - b.length || comparePrefixes(a, b)).slice(0, limit)
  return {
    ranges: ranges.sort(comparePrefixes),
    networks,
    scattered: pods.length > 0,
    cut: all.length - ranges.length,
  }
}

const UNKNOWN: OwnRanges = { ranges: [], networks: [], scattered: false, cut: 0 }

export interface NodeWorld {
  readonly node: string
  readonly self: string
  readonly nodes: readonly Node[]
  readonly clusters: readonly Cluster[]
  readonly facts: KernelFacts
}

/** Of the node itself; none while its Node object or its InternalIP cannot be used. */
export function rangesOfNode(world: NodeWorld, family: Family, limit = MAX_POD_RANGES): OwnRanges {
  const { facts } = world
  const self = overlayNodes(world.nodes).nodes.get(world.node)
  const underlay = self === undefined ? undefined : deviceOf(facts, self.address)?.name
  if (self === undefined || underlay === undefined) return UNKNOWN
  const podCIDRs = podPrefixes(ownCluster(world), family)
  return ownRanges({ facts, spec: specRanges(self.object, podCIDRs), podCIDRs, underlay, limit })
}

/** Of each family that is planned, IPv4 first. Together they are at most MAX_POD_RANGES, and IPv4 is served first. */
export function rangesByFamily(world: NodeWorld): ReadonlyMap<Family, OwnRanges> {
  const found = new Map<Family, OwnRanges>()
  let left = MAX_POD_RANGES
  for (const family of plannedFamilies(ownCluster(world))) {
    const own = rangesOfNode(world, family, left)
    left -= own.ranges.length
    found.set(family, own)
  }
  return found
}

export function ownCluster(world: Pick<NodeWorld, 'self' | 'clusters'>): Cluster | undefined {
  return world.clusters.find((cluster) => cluster.metadata.name === world.self)
}

export function rangeTexts(ranges: readonly Prefix[]): string[] {
  return ranges.map(formatPrefix)
}
