/**
 * Plans how this node reaches the other clusters: overlay device, neighbours, routes, rules. Pure. Tables are searched
 * in the order of their rules (model/kernel-ids.ts):
 *
 * - 7310 routes packets from a lane to other nodes' pods.
 * - 7316 does the same for packets that another gateway node has forwarded.
 * - 7311, which belongs to the gateway, leads into this node's lanes.
 * - 7312 leads to the gateway nodes and ends in `unreachable`, so that no packet for the clusterset leaves over the
 *   underlay without the overlay.
 * - 7318, for clusters that do not expose all pods, is `unreachable` for what the node itself sends to other clusters
 *   from an address outside the pods.
 * - 7317, after the main table's own routes, ends in `unreachable` for packets from a lane or the overlay to own pods.
 *
 * Both families have tables and rules of these numbers. IPv6 is planned only while this cluster has IPv6 pod CIDRs.
 */
import {
  type ClusterValidation,
  MAX_REPORTED_BY_NODE,
  type NeededRange,
  type Prefix,
  checkRemoteClusters,
  fewRanges,
  formatAddress,
  formatPrefix,
  machineRequiredRanges,
  plannedFamilies,
  podPrefixes,
  underlayAddresses,
} from '../../model/addresses/addresses.ts'
import {
  IPV6_MIN_MTU,
  NEXT_HOP_IDS_NODE,
  OVERLAY_ADDRESS,
  VXLAN_DEVICE,
  VXLAN_OVERHEAD_IPV4,
  VXLAN_VNI,
  laneDevice,
} from '../../model/model.ts'
import { statedRemoteLanes } from '../../model/lanes/lanes.ts'
import { type GroupedRoutes, groupRoutes } from '../../kernel/apply/apply.ts'
import {
  type ForwardingEntry,
  NO_NEXT_HOP_FEATURES,
  type Neighbour,
  type NewAddress,
  type NewLink,
  type NextHopListing,
  type Route,
  type Rule,
} from '../../kernel/route/route.ts'
import {
  type NodeRouteWorld,
  type OverlayNode,
  type PlanProblem,
  type SysctlSetting,
  deviceOf,
  overlayMac,
  overlayNodes,
  ownCluster,
  ownLanes,
  rangesByFamily,
} from '../world/world.ts'
import { type ForwardPoliciesPlan, NO_FORWARD_POLICIES, planForwardPolicies } from './plan-forward-policies.ts'
import { type ClusterPath, type RouteContext, planFamilyRoutes, planNoWay } from './plan-family-routes.ts'
import {
  type GatewayNode,
  answering,
  assumedLaneMtu,
  gatewaysTowards,
  hopNumbers,
  planDetours,
} from './plan-gateways.ts'
import { type ProbedNode, planProbeRoutes } from '../probes/probes.ts'
import type { Problem, ReasonCode } from '../../model/reasons/reasons.ts'

export interface RemotePath {
  readonly cluster: string
  readonly gateways: readonly string[]
  readonly mtu: number
}

export interface NodeRoutes {
  readonly ok: true
  readonly link: Extract<NewLink, { readonly kind: 'vxlan' }>
  /** The device of this machine that carries the overlay. */
  readonly uplink: string
  /** Address of that device: OVERLAY_ADDRESS. */
  readonly address: NewAddress
  readonly neighbours: readonly Neighbour[]
  readonly forwarding: readonly ForwardingEntry[]
  readonly routes: readonly Route[]
  /** Next-hop objects of the routes. Empty if the kernel does not support them. */
  readonly nextHops: NextHopListing
  readonly rules: readonly Rule[]
  /** Rules that are in the kernel before the overlay device, and as long as it is. */
  readonly guard: readonly Rule[]
  /** XFRM policies, if not all pods are exposed and failClosed is not stated. */
  readonly policies: ForwardPoliciesPlan
  /** Nodes to probe over the overlay, and the source address. */
  readonly probed: { readonly address: string; readonly nodes: readonly ProbedNode[] }
  readonly sysctls: readonly SysctlSetting[]
  /** Gateways towards each cluster, for RouteAgent.status. Includes a silent gateway node if there is no other. */
  readonly paths: readonly RemotePath[]
  readonly podRanges: readonly Prefix[]
  /** How many ranges are left out. */
  readonly podRangesCut: number
  /** Ranges that this node needs outside the lanes, for RouteAgent.status. */
  readonly underlay: readonly string[]
  /** Nodes and clusters that are left out, with the reason. */
  readonly problems: readonly PlanProblem[]
}

/** Either the whole plan, or the reason why this node can have none. In that case the kernel stays as it is. */
export type NodeRoutePlan = NodeRoutes | ({ readonly ok: false } & Problem)

export function planNodeRoutes(world: NodeRouteWorld): NodeRoutePlan {
  const overlay = overlayNodes(world.nodes)
  const self = overlay.nodes.get(world.node)
  if (self === undefined) return { ok: false, ...whyNoNode(world, overlay.problems) }
  const device = deviceOf(world.facts, self.address)
  if (device === undefined) {
    const message = `Node ${world.node}: no device of this machine has its InternalIP ${formatAddress(self.address)}`
    return { ok: false, reason: 'UnderlayDeviceMissing', message }
  }
  const others = [...overlay.nodes.values()].filter((node) => node.name !== world.node)
  const mtus = { underlayMtu: device.mtu, overlayMtu: device.mtu - VXLAN_OVERHEAD_IPV4 }
  const validation = clusterValidation(world)
  const clusters = clusterPaths(world, validation, mtus)
  const ownEndpoints = world.endpoints.filter((e) => e.spec.cluster === world.self)
  const detours = planDetours({ others, ownEndpoints, silent: world.silentNodes ?? new Set() })
  const context = { self, others, ...mtus, laneDevices: laneDevices(world), clusters, detours }
  const ranges = rangesByFamily(world)
  const tooNarrow = ranges.has(6) && mtus.overlayMtu < IPV6_MIN_MTU
  const probes = planProbeRoutes({ self, others, ownEndpoints })
  const families = [...ranges].map(([family, own]) =>
    family === 6 && tooNarrow ? planNoWay(world, context, family) : planFamilyRoutes(world, context, family, own),
  )
  return {
    ok: true,
    link: overlayLink(world, context),
    uplink: device.name,
    address: { device: VXLAN_DEVICE, address: `${OVERLAY_ADDRESS}/32`, scope: 'host' },
    neighbours: families.flatMap((plan) => plan.neighbours),
    forwarding: forwardingEntries(others),
    ...withGroups(world, context, [...probes.routes, ...families.flatMap((plan) => plan.routes)]),
    rules: [...probes.rules, ...families.flatMap((plan) => plan.rules)],
    guard: families.flatMap((plan) => plan.guard),
    policies: forwardPolicies(world, context),
    probed: { address: formatAddress(self.address), nodes: probes.nodes },
    sysctls: families.flatMap((plan) => plan.sysctls),
    paths: clusters.map(({ cluster, gateways, mtu }) => ({ cluster, gateways: gateways.map((g) => g.node), mtu })),
    podRanges: [...ranges.values()].flatMap((own) => own.ranges),
    podRangesCut: [...ranges.values()].reduce((sum, own) => sum + own.cut, 0),
    underlay: reportedUnderlay(world),
    problems: [
      ...overlay.problems,
      ...(tooNarrow
        ? [
            onlyIpv4(
              self,
              'MtuTooSmallForIPv6',
              `MTU ${mtus.overlayMtu} of the overlay: IPv6 needs at least ${IPV6_MIN_MTU}`,
            ),
          ]
        : []),
      ...(world.ipv6LeftOut === true ? [onlyIpv4(self, 'IPv6NotInKernel', 'this kernel has no IPv6')] : []),
      ...families.flatMap((plan) => plan.problems),
      ...validation.refused.map(({ name, ...why }) => ({ subject: `Cluster ${name}`, ...why })),
    ],
  }
}

/**
 * As long as there is one policy, the kernel looks each packet up that this node forwards: an estimated 0.3 to 0.5 µs
 * (not measured), and more for short prefixes (plan-forward-policies.ts). The routing rules of failClosed drop the same
 * packets at no cost, so they need no policies beside them, and an operator who states false wants neither.
 */
function forwardPolicies(world: NodeRouteWorld, context: RouteContext): ForwardPoliciesPlan {
  const { exposure = 'pods', failClosed } = world
  if (exposure === 'pods' || failClosed !== undefined) return NO_FORWARD_POLICIES
  const overlay = context.laneDevices.length === 0 ? undefined : VXLAN_DEVICE
  return planForwardPolicies({
    remote: context.clusters.flatMap(({ prefixes }) => prefixes),
    pods: plannedFamilies(ownCluster(world)).flatMap((family) => podPrefixes(ownCluster(world), family)),
    overlayIndex: world.facts.links.find(({ name }) => name === overlay)?.index,
  })
}

/** Routes to other clusters over one next-hop group each. The lane number of a gateway node numbers its hop. */
function withGroups(
  world: NodeRouteWorld,
  { clusters, others }: RouteContext,
  routes: readonly Route[],
): GroupedRoutes {
  const indexes = new Map(clusters.flatMap(({ index, prefixes }) => prefixes.map((one) => [formatPrefix(one), index])))
  const numbers = hopNumbers(clusters, others)
  return groupRoutes(routes, world.facts.nextHopFeatures ?? NO_NEXT_HOP_FEATURES, {
    ids: NEXT_HOP_IDS_NODE,
    remoteOf: ({ destination }) => indexes.get(destination),
    numberOf: ({ via }) => (via === undefined ? undefined : numbers.get(via)),
  })
}

function whyNoNode(world: NodeRouteWorld, problems: readonly PlanProblem[]): Problem {
  const subject = `Node ${world.node}`
  const found = problems.find((p) => p.subject === subject)
  if (found === undefined) return { reason: 'NodeNotUsable', message: `${subject} does not exist` }
  return { reason: found.reason, message: `${subject}: ${found.message}` }
}

function onlyIpv4({ name }: OverlayNode, reason: ReasonCode, why: string): PlanProblem {
  return { subject: `Node ${name}`, reason, message: `${why}, so only IPv4 is routed` }
}

function overlayLink(
  { overlayPort }: Pick<NodeRouteWorld, 'overlayPort'>,
  { self, overlayMtu }: Pick<RouteContext, 'self' | 'overlayMtu'>,
): NodeRoutes['link'] {
  return {
    kind: 'vxlan',
    name: VXLAN_DEVICE,
    vni: VXLAN_VNI,
    port: overlayPort,
    local: formatAddress(self.address),
    mac: overlayMac(self.address),
    mtu: overlayMtu,
  }
}

function forwardingEntries(others: readonly OverlayNode[]): ForwardingEntry[] {
  return others.map((node) => ({
    device: VXLAN_DEVICE,
    mac: overlayMac(node.address),
    destination: formatAddress(node.address),
  }))
}

/** Lane devices that the gateway creates here or may create. A rule for a missing device has no effect. */
function laneDevices(world: NodeRouteWorld): readonly string[] {
  return ownLanes(world).length === 0 ? [] : statedRemoteLanes(world.endpoints, world.self).map(laneDevice)
}

type Mtus = Pick<RouteContext, 'underlayMtu' | 'overlayMtu'>

function clusterPaths(world: NodeRouteWorld, { clusters }: ClusterValidation, mtus: Mtus): ClusterPath[] {
  const ownEndpoints = world.endpoints.filter((e) => e.spec.cluster === world.self)
  return clusters.map(({ id, index, prefixes }) => {
    const gateways = answering(gatewaysTowards(id, ownEndpoints, world.gateways), world)
    return { cluster: id, index, prefixes, gateways, mtu: pathMtu(mtus, gateways) }
  })
}

/** Decides which other clusters may be routed. */
export function clusterValidation(
  world: Pick<NodeRouteWorld, 'clusters' | 'self' | 'nodes' | 'facts'>,
): ClusterValidation {
  const own = ownCluster(world)
  if (own === undefined) return { clusters: [], refused: [] }
  const underlay = underlayAddresses(
    world.nodes,
    world.facts.addresses.map((entry) => entry.address),
  )
  return checkRemoteClusters({ own, clusters: world.clusters, underlay, needed: nodeRequiredRanges(world) })
}

/** Ranges that this node needs outside the lanes. */
export function nodeRequiredRanges({ nodes, facts }: Pick<NodeRouteWorld, 'nodes' | 'facts'>): NeededRange[] {
  return machineRequiredRanges({
    nodes: underlayAddresses(nodes),
    interfaces: facts.addresses.map((entry) => entry.address),
    nextHops: facts.machine?.nextHops ?? [],
    nameServers: facts.machine?.nameServers ?? [],
  })
}

/** The required ranges that this node reports. Other nodes report their own addresses. */
function reportedUnderlay(world: NodeRouteWorld): string[] {
  const self = world.nodes.filter(({ metadata }) => metadata.name === world.node)
  const required = nodeRequiredRanges({ ...world, nodes: self }).map(({ prefix }) => prefix)
  return fewRanges(required, MAX_REPORTED_BY_NODE)
}

function pathMtu({ underlayMtu, overlayMtu }: Mtus, gateways: readonly GatewayNode[]): number {
  const lanes = gateways.map((gateway) => gateway.mtu ?? assumedLaneMtu(underlayMtu))
  return Math.min(overlayMtu, ...lanes)
}
