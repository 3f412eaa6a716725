/** Plans the routes over the lanes and the rules that lead to them. Pure. */
import { type RoutingScope, groupRoutes } from '../../kernel/apply/apply.ts'
import {
  NO_NEXT_HOP_FEATURES,
  type NextHop,
  type NextHopListing,
  type NextHopTable,
  type Route,
  type Rule,
} from '../../kernel/route/route.ts'
import {
  FAMILIES,
  type Family,
  InvalidAddressError,
  type NodeRanges,
  type Prefix,
  comparePrefixes,
  elsewherePrefixes,
  familyOf,
  isPublicSpace,
  nodeClaim,
  ownPodAddress,
  parsePrefix,
  plannedFamilies,
  podPlaces,
  podPrefixes,
  underlayAddresses,
} from '../../model/addresses/addresses.ts'
import {
  IPV6_MIN_MTU,
  LANE_MARK,
  LOOPBACK_DEVICE,
  NEXT_HOP_IDS_LANES,
  ROUTE_TABLE_LANES,
  ROUTE_TABLE_LANES_PUBLIC,
  RULE_LANES,
  RULE_LANES_OWN_SOURCE,
} from '../../model/model.ts'
import { carryingLinks } from '../health/health.ts'
import { type LanePlan, linkMtu } from '../links/links.ts'
import { type GatewayWorld, healthKey } from '../world/world.ts'

/** All tables with routes of the gateway. */
export const LANE_TABLES: ReadonlySet<number> = new Set([ROUTE_TABLE_LANES, ROUTE_TABLE_LANES_PUBLIC])

/** The part of the kernel's routing that belongs to the gateway. */
export function laneScope({ nextHops }: { readonly nextHops?: NextHopTable }): RoutingScope {
  return {
    tables: LANE_TABLES,
    ...(nextHops === undefined ? {} : { nextHops: { table: nextHops, ids: NEXT_HOP_IDS_LANES } }),
  }
}

export interface LaneRoutesPlan {
  /** One rule for each family that has lanes. */
  readonly rules: readonly Rule[]
  /** Routes of both families, IPv4 first. */
  readonly routes: readonly Route[]
  /** Next-hop objects of the routes. Empty if the kernel does not support them. */
  readonly nextHops: NextHopListing
}

/**
 * A lane device has no neighbours, but the kernel requires a gateway address if an IPv6 route has several next hops.
 */
const ANY_NEIGHBOUR = 'fe80::1'

/**
 * A remote prefix is routed over every device that carries traffic to its cluster. If there is none, it has no route:
 * the node's table then sends it to another gateway or reports it as unreachable. Lane addresses are always routed,
 * because probes need them to find out whether a connection is up. A link that has been handed over is not used,
 * because the far end no longer accepts packets from this node. The kernel has no IPv6 on a device whose MTU is too
 * small for it, so such devices and links get no IPv6 routes.
 *
 * The path of a link may be narrower than its device, which serves links to other clusters too. So the routes to a
 * cluster have the MTU of its narrowest link that carries traffic. The route to the far end's lane address has no MTU,
 * because the probes that find the MTU use it.
 */
export function planLaneRoutes(world: GatewayWorld, lanes: readonly LanePlan[]): LaneRoutesPlan {
  const sources = { 4: podSideAddress(world, 4), 6: podSideAddress(world, 6) }
  const routes: Route[] = []
  const devices = new Map<string, string[]>()
  const mtus = new Map<string, number>()
  const indexes = new Map<string, number>()
  const carrying = carryingLinks(world)
  for (const lane of lanes) {
    const laneAddress = lane.address.replace('/32', '')
    for (const link of lane.links) {
      routes.push(laneRoute(`${link.laneAddress}/32`, [{ device: lane.device }], laneAddress))
      if (!carrying.has(healthKey(lane.remoteLane, link.cluster))) continue
      const mtu = linkMtu(lane.mtu, world.health.get(healthKey(lane.remoteLane, link.cluster)))
      for (const prefix of link.prefixes) {
        if (familyOf(prefix) === 6 && mtu < IPV6_MIN_MTU) continue
        if (mtu < lane.mtu) mtus.set(prefix, Math.min(mtu, mtus.get(prefix) ?? mtu))
        devices.set(prefix, [...(devices.get(prefix) ?? []), lane.device])
        indexes.set(prefix, link.index)
      }
    }
  }
  for (const [prefix, over] of devices) {
    const family = familyOf(prefix)
    const table = isPublicSpace(parsePrefix(prefix), world.globalRange) ? ROUTE_TABLE_LANES_PUBLIC : ROUTE_TABLE_LANES
    const mtu = mtus.get(prefix)
    const route = laneRoute(prefix, nextHops(over, family), sources[family])
    routes.push({ ...route, table, ...(mtu === undefined ? {} : { mtu }) })
  }
  routes.sort((a, b) => comparePrefixes(parsePrefix(a.destination), parsePrefix(b.destination)))
  const rules = planRules(plannedFamilies(world.own).includes(6) && lanes.length > 0)
  const numbers = new Map(lanes.map(({ device, remoteLane }) => [device, remoteLane]))
  const grouped = groupRoutes(routes, world.nextHopFeatures ?? NO_NEXT_HOP_FEATURES, {
    ids: NEXT_HOP_IDS_LANES,
    remoteOf: ({ destination }) => indexes.get(destination),
    numberOf: ({ device }) => numbers.get(device),
  })
  return { rules: [...rules, ...FAMILIES.flatMap((family) => publicRules(world, routes, family))], ...grouped }
}

function planRules(withIpv6: boolean): Rule[] {
  const rule: Rule = { priority: RULE_LANES, table: ROUTE_TABLE_LANES, exceptMark: LANE_MARK }
  return withIpv6 ? [rule, { family: 6, ...rule }] : [rule]
}

/**
 * Packets of this node use this table only if their source is the node's address among the pods
 * (model/kernel-ids.ts).
 */
function publicRules(world: GatewayWorld, routes: readonly Route[], family: Family): Rule[] {
  const isPublic = (route: Route): boolean =>
    route.table === ROUTE_TABLE_LANES_PUBLIC && familyOf(route.destination) === family
  if (!routes.some(isPublic)) return []
  const base = { priority: RULE_LANES, table: ROUTE_TABLE_LANES_PUBLIC, ...(family === 6 ? { family } : {}) } as const
  const source = podSideAddress(world, family)
  const own = source !== undefined && !underlayAddresses(world.nodes).includes(source)
  return [
    { ...base, exceptInputDevice: LOOPBACK_DEVICE },
    ...(own ? [{ ...base, priority: RULE_LANES_OWN_SOURCE, inputDevice: LOOPBACK_DEVICE, source }] : []),
  ]
}

/** The kernel refuses several IPv6 next hops without gateway addresses. */
function nextHops(devices: readonly string[], family: Family): NextHop[] {
  const several = family === 6 && devices.length > 1
  return devices.map((device) => (several ? { device, via: ANY_NEIGHBOUR, onlink: true } : { device }))
}

/**
 * An address of this node inside its cluster's pod CIDRs of that family, preferably inside the node's own range. What
 * the node sends from it can be translated and answered like packets of a pod, and ICMP errors from another address
 * would not pass a lane. Undefined if the node has none.
 */
export function podSideAddress(
  world: Pick<GatewayWorld, 'addresses' | 'own' | 'nodes' | 'node' | 'routeAgents'>,
  family: Family,
): string | undefined {
  const addresses = world.addresses.map((entry) => entry.address)
  const own = podClaims(world, family).find((claim) => claim.node === world.node)
  return ownPodAddress(addresses, own?.ranges ?? []) ?? ownPodAddress(addresses, podPrefixes(world.own, family))
}

function laneRoute(destination: string, nextHops: readonly NextHop[], source: string | undefined): Route {
  return {
    table: ROUTE_TABLE_LANES,
    destination,
    type: 'unicast',
    nextHops,
    ...(source === undefined ? {} : { source }),
  }
}

// What the nodes of this cluster report about where their pods are. Pure.

type ClaimWorld = Pick<GatewayWorld, 'own' | 'nodes' | 'node' | 'routeAgents'>

/** Claims of one family: ranges inside the cluster's pod CIDRs of that family. */
function podClaims({ own, nodes, routeAgents }: ClaimWorld, family: Family): NodeRanges[] {
  const podCIDRs = podPrefixes(own, family)
  const agents = new Map(routeAgents.map((agent) => [agent.metadata.name, agent]))
  return nodes.map((node) => {
    const { name } = node.metadata
    try {
      return nodeClaim(node, agents.get(name), podCIDRs)
    } catch (error) {
      // Nothing is known of a Node that cannot be parsed. The route agent reports it.
      if (error instanceof InvalidAddressError) return { node: name, ranges: [] }
      throw error
    }
  })
}

/** Where pods of other nodes certainly are, as disjoint prefixes of one family. */
export function podsElsewhere(world: ClaimWorld, family: Family): Prefix[] {
  return elsewherePrefixes(podPlaces(world.node, podClaims(world, family)))
}
