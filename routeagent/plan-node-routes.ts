/**
 * The way from this node to the other clusters: overlay device, neighbours, routes, rules. Pure.
 * Tables are looked up in the order of their numbers (model/kernel-ids.ts): 7310 takes what comes out of a lane to
 * other nodes' pods, 7311 (the gateway's own) leads into this node's lanes, 7312 leads to the gateway nodes and
 * ends in `unreachable`, so that nothing of ours ever falls through to the underlay.
 */
import { routedPrefixes } from '../model/addressing.ts'
import { type Prefix, InvalidAddressError, formatAddress, formatPrefix } from '../model/ip.ts'
import {
  ROUTE_TABLE_FROM_LANES,
  ROUTE_TABLE_NODE,
  VXLAN_DEVICE,
  VXLAN_PORT,
  VXLAN_VNI,
  laneDevice,
} from '../model/kernel-ids.ts'
import type { Cluster, Endpoint, Gateway, Node } from '../model/objects.ts'
import { VXLAN_OVERHEAD_IPV4 } from '../model/spec-constants.ts'
import type { ForwardingEntry, Neighbour, NewLink, NextHop, Route, Rule } from '../kernel/route-table.ts'
import { type KernelFacts, deviceOf, ownPodAddress } from './node-facts.ts'
import { type GatewayNode, assumedLaneMtu, gatewaysTowards } from './plan-gateways.ts'
import { type OverlayNode, type PlanProblem, overlayMac, overlayNodes } from './plan-nodes.ts'

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
  /** Nodes and clusters that are left out, with the reason. */
  readonly problems: readonly PlanProblem[]
}

/** Either the whole plan, or the one reason why this node can have none; then what is in the kernel stays. */
export type NodeRoutePlan = NodeRoutes | { readonly ok: false; readonly reason: string }

/** Routes that lead somewhere; those that end in `unreachable` come after every other. */
export const METRIC_VIA_GATEWAY = 100
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
  const ground: Ground = {
    self,
    others: [...overlay.nodes.values()].filter((node) => node.name !== world.node),
    underlayMtu: device.mtu,
    overlayMtu: device.mtu - VXLAN_OVERHEAD_IPV4,
    source: ownPodAddress(world.facts, self.podCidrs),
  }
  const lanes = ownLanes(world)
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
    routes: [
      ...(lanes.length === 0 ? [] : podRoutes(ground)),
      ...remote.routes,
      clustersetIpRoute(world, ground, remote),
      ...lastResort(world, remote),
    ],
    rules: rulesFor(lanes),
    sysctls: [
      { name: 'net/ipv4/ip_forward', value: '1' },
      // Answers may come in by another way than the one the question took.
      { name: `net/ipv4/conf/${VXLAN_DEVICE}/rp_filter`, value: '2' },
    ],
    paths: remote.paths,
    problems: [...overlay.problems, ...remote.problems],
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

function ownLanes(world: NodeRouteWorld): number[] {
  const own = world.endpoints.filter((e) => e.spec.cluster === world.self && e.spec.node === world.node)
  return [...new Set(own.map((e) => e.spec.lane))].sort((a, b) => a - b)
}

// Out of a lane, pods of other nodes are reached over the overlay: the underlay need not know pod addresses.
function podRoutes(ground: Ground): Route[] {
  return ground.others.flatMap((node) =>
    node.podCidrs.map((prefix): Route => ({
      table: ROUTE_TABLE_FROM_LANES,
      destination: formatPrefix(prefix),
      type: 'unicast',
      nextHops: [hopTo(node)],
      metric: METRIC_VIA_GATEWAY,
      mtu: ground.overlayMtu,
    })),
  )
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
  for (const { id, destinations, problem } of remoteClusters(world)) {
    if (problem !== undefined) problems.push({ subject: `Cluster ${id}`, reason: problem })
    const gateways = gatewaysTowards(id, ownEndpoints, world.gateways)
    const mtu = pathMtu(ground, gateways)
    paths.push({ cluster: id, gateways: gateways.map((g) => g.node), mtu })
    const hops = nextHops(ground, gateways)
    for (const prefix of destinations) {
      const destination = formatPrefix(prefix)
      if (prefixes.includes(destination)) {
        problems.push({ subject: `Cluster ${id}`, reason: `${destination} already leads to another cluster` })
        continue
      }
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

/** The other clusters in order of their ids, with the IPv4 prefixes that lead to them. */
export function remoteClusters(
  world: Pick<NodeRouteWorld, 'clusters' | 'self'>,
): { readonly id: string; readonly destinations: readonly Prefix[]; readonly problem?: string }[] {
  return world.clusters
    .filter((cluster) => cluster.metadata.name !== world.self)
    .sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
    .map((cluster) => {
      const id = cluster.metadata.name
      try {
        return { id, destinations: routedPrefixes(cluster.spec).filter((prefix) => prefix.family === 4) }
      } catch (error) {
        if (!(error instanceof InvalidAddressError)) throw error
        return { id, destinations: [], problem: error.message }
      }
    })
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

function hopTo(node: OverlayNode): NextHop {
  return { device: VXLAN_DEVICE, via: formatAddress(node.address), onlink: true }
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
    priority: ROUTE_TABLE_FROM_LANES,
    table: ROUTE_TABLE_FROM_LANES,
    inputDevice: laneDevice(lane),
  }))
  return [...fromLanes, { priority: ROUTE_TABLE_NODE, table: ROUTE_TABLE_NODE }]
}
