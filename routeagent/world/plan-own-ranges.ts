/** Finds the pod ranges of this node from its Node and its kernel, for its report and for balancing. Pure. */
import type { InterfaceAddress, Link, MainRoute } from '../../kernel/route/route.ts'
import {
  type Family,
  MAX_POD_RANGES,
  type Prefix,
  addressBits,
  aggregate,
  comparePrefixes,
  containsAddress,
  containsPrefix,
  formatPrefix,
  isInside,
  parseAddress,
  parsePrefix,
  plannedFamilies,
  podPrefixes,
  prefixOf,
  specRanges,
} from '../../model/addresses/addresses.ts'
import type { Cluster, Node } from '../../model/model.ts'
import { type KernelFacts, deviceOf } from './node-world.ts'
import { overlayNodes } from './plan-nodes.ts'

interface KernelRangesInit {
  readonly links: readonly Link[]
  readonly addresses: readonly InterfaceAddress[]
  readonly mainRoutes: readonly MainRoute[]
  /** Pod CIDRs of the cluster. Addresses of other families are ignored. */
  readonly podCIDRs: readonly Prefix[]
  /** Device that has the node's InternalIP. */
  readonly underlay: string
}

/** Each list is sorted, has each prefix once, and lies inside the cluster's pod CIDRs. */
interface KernelRanges {
  /** Networks that the CNI gave to this node. */
  readonly networks: readonly Prefix[]
  /** Addresses of single pods. */
  readonly pods: readonly Prefix[]
  /** Addresses of the machine itself. */
  readonly addresses: readonly Prefix[]
}

/** Kinds of devices that belong to one pod. */
const POD_DEVICES: ReadonlySet<string> = new Set(['veth', 'netkit'])
/** Kinds of devices that several pods share. */
const SWITCH_DEVICES: ReadonlySet<string> = new Set(['bridge', 'openvswitch'])

/**
 * Finds the pods of this machine in its kernel, because some CNIs allocate ranges themselves, so that Node.spec has no
 * ranges or different ones. Pure.
 *
 * | CNI | what the kernel shows |
 * |---|---|
 * | Calico | `blackhole 10.42.5.0/26` for each block of the node, `10.42.5.7 dev cali…` for each pod |
 * | Cilium | `10.0.1.0/24 via 10.0.1.125 dev cilium_host`, where the gateway is the device's own address |
 * | addresses of a cloud | `10.1.3.9 dev eni…`, `dev azv…`, `dev lxc…` for each pod |
 * | a bridge or Open vSwitch (Flannel, kube-router, Antrea, OVN-Kubernetes) | the network of the device |
 */
function planLocalRanges(init: KernelRangesInit): KernelRanges {
  const { podCIDRs, mainRoutes } = init
  const kinds = new Map(init.links.map((link) => [link.name, link.kind]))
  // A route that leaves the node is no pod, even if it looks like one (a cloud's router is `10.1.0.1 dev eth0`).
  const outside = new Set([init.underlay])
  for (const { destination, device } of mainRoutes) if (isDefault(destination) && device) outside.add(device)
  const networks: Prefix[] = []
  const pods: Prefix[] = []
  for (const route of mainRoutes.filter(({ destination }) => !isDefault(destination))) {
    const prefix = parsePrefix(route.destination)
    if (route.type === 'blackhole') {
      // A block of this node. A blackhole route for a whole pod CIDR says nothing about one node.
      networks.push(...within(prefix, podCIDRs).filter((p) => podCIDRs.every((cidr) => p.length > cidr.length)))
      continue
    }
    const { device } = route
    if (route.type !== 'unicast' || device === undefined || outside.has(device)) continue
    const own = addressesOf(init, device)
    const isSwitch = SWITCH_DEVICES.has(kinds.get(device) ?? '')
    if (route.via !== undefined) {
      const throughItself = own.includes(route.via) && containsAddress(prefix, parseAddress(route.via))
      if (throughItself) networks.push(...within(prefix, podCIDRs))
    } else if (prefix.length === addressBits(prefix.family)) {
      if (POD_DEVICES.has(kinds.get(device) ?? '') || isSwitch) pods.push(...within(prefix, podCIDRs))
    } else if (isSwitch && own.some((text) => containsAddress(prefix, parseAddress(text)))) {
      networks.push(...within(prefix, podCIDRs))
    }
  }
  const addresses = init.addresses
    .map((entry) => parseAddress(hostOf(entry)))
    .flatMap((address) => within(prefixOf(address, addressBits(address.family)), podCIDRs))
  return { networks: distinct(networks), pods: distinct(pods), addresses: distinct(addresses) }
}

/** The part of the prefix that lies inside the pod CIDRs. */
function within(prefix: Prefix, podCIDRs: readonly Prefix[]): Prefix[] {
  if (isInside(prefix, podCIDRs)) return [prefix]
  return podCIDRs.filter((cidr) => containsPrefix(prefix, cidr))
}

function addressesOf({ addresses }: KernelRangesInit, device: string): string[] {
  return addresses.filter((entry) => entry.device === device).map(hostOf)
}

function hostOf(entry: InterfaceAddress): string {
  return entry.address.split('/')[0] ?? ''
}

function isDefault(destination: string): boolean {
  return destination.endsWith('/0')
}

function distinct(prefixes: readonly Prefix[]): Prefix[] {
  const sorted = [...prefixes].sort(comparePrefixes)
  return sorted.filter((prefix, i) => i === 0 || comparePrefixes(prefix, sorted[i - 1] as Prefix) !== 0)
}

/** Ranges of one family. */
export interface OwnRanges {
  /** Ranges for RouteAgent.status: pods and the node's own addresses inside the pod CIDRs. */
  readonly ranges: readonly Prefix[]
  /** Networks, which do not change with each pod. For a node without pods, those of its Node. */
  readonly networks: readonly Prefix[]
  /** Some pods have single addresses outside these networks. */
  readonly scattered: boolean
  /** How many ranges are left out. */
  readonly cut: number
}

export interface OwnRangesInit {
  readonly facts: KernelFacts
  /** Node.spec.podCIDRs of this node, inside the cluster's. */
  readonly spec: readonly Prefix[]
  /** Pod CIDRs of the cluster, of one family. */
  readonly podCIDRs: readonly Prefix[]
  readonly underlay: string
  /** How many ranges may be reported. */
  readonly limit?: number
}

/**
 * The Node's ranges are used if the kernel shows no pods outside them, since a node may not have pods yet. If the
 * kernel shows pods outside them, or other networks, the CNI allocates by itself and the Node's ranges are ignored. If
 * the kernel shows no pods, the Node's ranges are not reported, because the CNI may have given these addresses to other
 * nodes.
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

/** Ranges of this node. Empty while its Node object or its InternalIP cannot be used. */
export function rangesOfNode(world: NodeWorld, family: Family, limit = MAX_POD_RANGES): OwnRanges {
  const { facts } = world
  const self = overlayNodes(world.nodes).nodes.get(world.node)
  const underlay = self === undefined ? undefined : deviceOf(facts, self.address)?.name
  if (self === undefined || underlay === undefined) return UNKNOWN
  const podCIDRs = podPrefixes(ownCluster(world), family)
  return ownRanges({ facts, spec: specRanges(self.object, podCIDRs), podCIDRs, underlay, limit })
}

/**
 * Ranges of each planned family, IPv4 first. Together they are at most MAX_POD_RANGES, and IPv4 takes its share first.
 */
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
