/** Which pods this node has, from its Node and its kernel: what it tells the others, and balances by. Pure. */
import { type Prefix, containsPrefix, formatPrefix, parsePrefix } from '../model/ip.ts'
import { MAX_POD_RANGES, aggregate, comparePrefixes, specRanges } from '../model/pod-ranges.ts'
import type { Cluster, Node } from '../model/objects.ts'
import { type KernelFacts, deviceOf } from './node-facts.ts'
import { overlayNodes } from './plan-nodes.ts'
import { planLocalRanges } from './plan-local-ranges.ts'

export interface OwnRanges {
  /** For RouteAgent.status: pods and the node's own addresses inside the pod CIDRs; at most MAX_POD_RANGES. */
  readonly ranges: readonly Prefix[]
  /** Networks among them, which do not change with each pod. */
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
  readonly podCIDRs: readonly Prefix[]
  readonly underlay: string
}

/**
 * The Node's word counts where the kernel shows nothing, or nothing else: ranges that have no pod yet are in it. Where
 * the kernel shows pods outside it, the CNI keeps books of its own, and the Node's word is void.
 */
export function ownRanges({ facts, spec, podCIDRs, underlay }: OwnRangesInit): OwnRanges {
  const kernel = planLocalRanges({ ...facts, podCIDRs, underlay })
  const shown = [...kernel.networks, ...kernel.pods]
  const agreed = spec.length > 0 && shown.every((prefix) => holds(spec, prefix))
  const networks = aggregate(agreed ? spec : kernel.networks)
  const pods = kernel.pods.filter((prefix) => !holds(networks, prefix))
  const all = aggregate([...networks, ...pods, ...kernel.addresses])
  const ranges = [...all].sort((a, b) => a.length - b.length || comparePrefixes(a, b)).slice(0, MAX_POD_RANGES)
  return {
    ranges: ranges.sort(comparePrefixes),
    networks,
    scattered: pods.length > 0,
    cut: all.length - ranges.length,
  }
}

const UNKNOWN: OwnRanges = { ranges: [], networks: [], scattered: false, cut: 0 }

/** Of the node itself; none while its Node object or its InternalIP cannot be used. */
export function rangesOfNode(world: {
  readonly node: string
  readonly self: string
  readonly nodes: readonly Node[]
  readonly clusters: readonly Cluster[]
  readonly facts: KernelFacts
}): OwnRanges {
  const { facts } = world
  const self = overlayNodes(world.nodes).nodes.get(world.node)
  const underlay = self === undefined ? undefined : deviceOf(facts, self.address)?.name
  if (self === undefined || underlay === undefined) return UNKNOWN
  const podCIDRs = podPrefixes(world.clusters.find((cluster) => cluster.metadata.name === world.self))
  return ownRanges({ facts, spec: specRanges(self.object, podCIDRs), podCIDRs, underlay })
}

/** Pod CIDRs of a cluster, IPv4. */
export function podPrefixes(cluster: Cluster | undefined): Prefix[] {
  return (cluster?.spec.podCIDRs ?? []).map((text) => parsePrefix(text, 'podCIDR')).filter((p) => p.family === 4)
}

export function rangeTexts(ranges: readonly Prefix[]): string[] {
  return ranges.map(formatPrefix)
}

function holds(outers: readonly Prefix[], prefix: Prefix): boolean {
  return outers.some((outer) => containsPrefix(outer, prefix))
}
