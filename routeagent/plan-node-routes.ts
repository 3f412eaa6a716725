/**
 * The way from this node to the other clusters: overlay device, neighbours, routes, rules. Pure.
 * Tables are looked up in the order of their rules (model/kernel-ids.ts): 7310 takes what comes out of a lane to
 * other nodes' pods, 7311 (the gateway's own) leads into this node's lanes, 7312 leads to the gateway nodes and
 * ends in `unreachable`, so that nothing of ours ever falls through to the underlay.
 */
import { formatAddress, formatPrefix } from '../model/ip.ts'
import {
  IP_FORWARDING,
  LANE_MARK,
  ROUTE_TABLE_FROM_LANES,
  ROUTE_TABLE_NODE,
  RULE_FROM_LANES,
  RULE_NODE,
  VXLAN_DEVICE,
  VXLAN_PORT,
  VXLAN_VNI,
  laneDevice,
} from '../model/kernel-ids.ts'
import type { Cluster, Endpoint, Gateway, Node, RouteAgent } from '../model/objects.ts'
import { type ClusterVerdicts, checkRemoteClusters, underlayAddresses } from '../model/remote-clusters.ts'
import { VXLAN_OVERHEAD_IPV4 } from '../model/spec-constants.ts'
import type { ForwardingEntry, Neighbour, NewLink, NextHop, Route, Rule } from '../kernel/route-table.ts'
import { type KernelFacts, deviceOf, ownPodAddress } from './node-facts.ts'
import { type OwnRanges, rangesOfNode } from './own-ranges.ts'
import { type GatewayNode, assumedLaneMtu, gatewaysTowards } from './plan-gateways.ts'
import {
  METRIC_VIA_GATEWAY,
  type OverlayNode,
  type PlanProblem,
  hopTo,
  overlayMac,
  overlayNodes,
} from './plan-nodes.ts'
import { NO_POD_ROUTES, planPodRoutes } from './plan-pod-routes.ts'

export interface NodeRouteWorld {
  /** This node's name. */
  readonly node: string
  /** This cluster's id. */
  readonly self: string
  readonly nodes: readonly Node[]
  /** All members, this one included. */
  readonly clusters: readonly Cluster[]
  /** Of all clusters; only this cluster's own say which node serves which lane. */
  readonly endpoints: readonly Endpoint[]
  readonly gateways: readonly Gateway[]
  /** What the other nodes tell about their pods; only read, and only of use, on a node that serves lanes. */
  readonly routeAgents: readonly RouteAgent[]
  readonly globalRange: string
  readonly clustersetIpRange: string
  readonly facts: KernelFacts
}

export interface RemotePath {
  readonly cluster: string
  readonly gateways: readonly string[]
  readonly mtu: number
}

export interface SysctlSetting {
  readonly name: string
  readonly value: string
}

export interface NodeRoutes {
  readonly ok: true
  readonly link: Extract<NewLink, { readonly kind: 'vxlan' }>
  readonly neighbours: readonly Neighbour[]
  readonly forwarding: readonly ForwardingEntry[]
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
  readonly sysctls: readonly SysctlSetting[]
  /** For RouteAgent.status. */
  readonly paths: readonly RemotePath[]
  readonly ownRanges: OwnRanges
  /** Nodes and clusters that are left out, with the reason. */
  readonly problems: readonly PlanProblem[]
}

/** Either the whole plan, or the one reason why this node can have none; then what is in the kernel stays. */
export type NodeRoutePlan = NodeRoutes | { readonly ok: false; readonly reason: string }

/** Those that end in `unreachable` come after every other. */
export const METRIC_UNREACHABLE = 0x7fffffff

interface Ground {
  readonly self: OverlayNode
  readonly others: readonly OverlayNode[]
  readonly underlayMtu: number
  readonly overlayMtu: number
  readonly source: string | undefined
}

export function planNodeRoutes(world: NodeRouteWorld): NodeRoutePlan {
  const overlay = overlayNodes(world.nodes)
  const self = overlay.nodes.get(world.node)
  if (self === undefined) return { ok: false, reason: whyNoNode(world, overlay.problems) }
  const device = deviceOf(world.facts, self.address)
  if (device === undefined) {
    const reason = `Node ${world.node}: no device of this machine has its InternalIP ${formatAddress(self.address)}`
    return { ok: false, reason }
  }
  const own = rangesOfNode(world)
  const ground: Ground = {
    self,
    others: [...overlay.nodes.values()].filter((node) => node.name !== world.node),
    underlayMtu: device.mtu,
    overlayMtu: device.mtu - VXLAN_OVERHEAD_IPV4,
    source: ownPodAddress(world.facts, own.ranges),
  }
  const lanes = ownLanes(world)
  const pods = lanes.length === 0 ? NO_POD_ROUTES : planPodRoutes(world, { ...ground, own: own.ranges })
  const remote = remoteRoutes(world, ground)
  return {
    ok: true,
    link: overlayLink(ground),
    neighbours: ground.others.map((node) => ({
      device: VXLAN_DEVICE,
      address: formatAddress(node.address),
      mac: overlayMac(node.address),
    })),
    forwarding: ground.others.map((node) => ({
      device: VXLAN_DEVICE,
      mac: overlayMac(node.address),
      destination: formatAddress(node.address),
    })),
    routes: [...pods.routes, ...remote.routes, clustersetIpRoute(world, ground, remote), ...lastResort(world, remote)],
    rules: rulesFor(lanes),
    sysctls: [
      { name: IP_FORWARDING, value: '1' },
      // Answers may come in by another way than the one the question took.
      { name: `net/ipv4/conf/${VXLAN_DEVICE}/rp_filter`, value: '2' },
    ],
    paths: remote.paths,
    ownRanges: own,
    problems: [...overlay.problems, ...pods.problems, ...remote.problems],
  }
}

function whyNoNode(world: NodeRouteWorld, problems: readonly PlanProblem[]): string {
  const subject = `Node ${world.node}`
  const problem = problems.find((p) => p.subject === subject)
  return problem === undefined ? `${subject} does not exist` : `${subject}: ${problem.reason}`
}

function overlayLink(ground: Ground): NodeRoutes['link'] {
  return {
    kind: 'vxlan',
    name: VXLAN_DEVICE,
    vni: VXLAN_VNI,
    port: VXLAN_PORT,
    local: formatAddress(ground.self.address),
    mac: overlayMac(ground.self.address),
    mtu: ground.overlayMtu,
  }
}

/** Lanes that this node serves, by this cluster's own Endpoints. */
export function ownLanes(world: Pick<NodeRouteWorld, 'endpoints' | 'self' | 'node'>): number[] {
  const own = world.endpoints.filter((e) => e.spec.cluster === world.self && e.spec.node === world.node)
  return [...new Set(own.map((e) => e.spec.lane))].sort((a, b) => a - b)
}

interface RemoteRoutes {
  readonly routes: readonly Route[]
  readonly prefixes: readonly string[]
  readonly paths: readonly RemotePath[]
  readonly problems: readonly PlanProblem[]
}

function remoteRoutes(world: NodeRouteWorld, ground: Ground): RemoteRoutes {
  const routes: Route[] = []
  const prefixes: string[] = []
  const paths: RemotePath[] = []
  const problems: PlanProblem[] = []
  const ownEndpoints = world.endpoints.filter((e) => e.spec.cluster === world.self)
  const { clusters, refused } = clusterVerdicts(world)
  problems.push(...refused.map(({ name, reason }) => ({ subject: `Cluster ${name}`, reason })))
  for (const { id, prefixes: claimed } of clusters) {
    const gateways = gatewaysTowards(id, ownEndpoints, world.gateways)
    const mtu = pathMtu(ground, gateways)
    paths.push({ cluster: id, gateways: gateways.map((g) => g.node), mtu })
    const hops = nextHops(ground, gateways)
    for (const destination of claimed.map(formatPrefix)) {
      prefixes.push(destination)
      if (hops.length > 0) routes.push(viaGateways(ground, destination, hops, mtu))
    }
  }
  return { routes, prefixes, paths, problems }
}

function viaGateways(ground: Ground, destination: string, nextHops: readonly NextHop[], mtu: number): Route {
  const source = ground.source === undefined ? {} : { source: ground.source }
  return { table: ROUTE_TABLE_NODE, destination, type: 'unicast', nextHops, metric: METRIC_VIA_GATEWAY, mtu, ...source }
}

/** Which other clusters may be routed, and which not. */
export function clusterVerdicts(world: Pick<NodeRouteWorld, 'clusters' | 'self' | 'nodes' | 'facts'>): ClusterVerdicts {
  const own = world.clusters.find((cluster) => cluster.metadata.name === world.self)
  if (own === undefined) return { clusters: [], refused: [] }
  const underlay = underlayAddresses(
    world.nodes,
    world.facts.addresses.map((entry) => entry.address),
  )
  return checkRemoteClusters({ own, clusters: world.clusters, underlay })
}

function pathMtu(ground: Ground, gateways: readonly GatewayNode[]): number {
  const lanes = gateways.map((gateway) => gateway.mtu ?? assumedLaneMtu(ground.underlayMtu))
  return Math.min(ground.overlayMtu, ...lanes)
}

// This node's own lanes are the gateway's business (table 7311); here only the other gateway nodes count.
function nextHops(ground: Ground, gateways: readonly GatewayNode[]): NextHop[] {
  const usable = gateways.flatMap((gateway) => {
    const node = ground.others.find((other) => other.name === gateway.node)
    return node === undefined ? [] : [{ hop: hopTo(node), lanes: gateway.lanes }]
  })
  const even = new Set(usable.map((u) => u.lanes)).size <= 1
  return usable.map(({ hop, lanes }) => (even ? hop : { ...hop, weight: Math.min(lanes, 256) }))
}

function lastResort(world: NodeRouteWorld, remote: RemoteRoutes): Route[] {
  const destinations = new Set([world.globalRange, world.clustersetIpRange, ...remote.prefixes])
  return [...destinations].map((destination) => ({
    table: ROUTE_TABLE_NODE,
    destination,
    type: 'unreachable',
    nextHops: [],
    metric: METRIC_UNREACHABLE,
  }))
}

/**
 * A program on the node itself calls a clusterset IP: the kernel looks for a route, and picks the source address,
 * before the output hook balances the connection and routes it anew. So the range needs a route that is no refusal.
 * Nothing ever leaves by it: what nobody balanced is refused in the nft table (plan-node-nft.ts).
 */
function clustersetIpRoute(world: NodeRouteWorld, ground: Ground, remote: RemoteRoutes): Route {
  const mtus = remote.paths.map((path) => path.mtu)
  return {
    table: ROUTE_TABLE_NODE,
    destination: world.clustersetIpRange,
    type: 'unicast',
    nextHops: [{ device: VXLAN_DEVICE }],
    metric: METRIC_VIA_GATEWAY,
    ...(mtus.length === 0 ? {} : { mtu: Math.min(...mtus) }),
    ...(ground.source === undefined ? {} : { source: ground.source }),
  }
}

function rulesFor(lanes: readonly number[]): Rule[] {
  const fromLanes = lanes.map((lane): Rule => ({
    priority: RULE_FROM_LANES,
    table: ROUTE_TABLE_FROM_LANES,
    inputDevice: laneDevice(lane),
  }))
  return [...fromLanes, { priority: RULE_NODE, table: ROUTE_TABLE_NODE, exceptMark: LANE_MARK }]
}
