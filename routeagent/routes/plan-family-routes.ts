/**
 * Plans the routes, rules and neighbours of one family. Pure. plan-node-routes.ts explains the tables and their order
 * for both families. IPv6 uses the overlay like IPv4, and is never translated.
 */
import type { Neighbour, NextHop, Route, Rule } from '../../kernel/route/route.ts'
import { deviceSettings } from '../../kernel/tuning/tuning.ts'
import {
  type Family,
  MAX_POD_RANGES,
  type Prefix,
  clustersetIpv6Range,
  formatPrefix,
  isPublicSpace,
  nodeClaim,
  ofFamily,
  ownPodAddress,
  parsePrefix,
  podPlaces,
  podPrefixes,
  specRanges,
  underlayAddresses,
} from '../../model/addresses/addresses.ts'
import {
  type Cluster,
  HASH_POLICY,
  IPV6_FORWARDING,
  IPV6_HASH_POLICY,
  IPV6_MIN_MTU,
  IP_FORWARDING,
  SOURCE_VALID_MARK,
  LANE_MARK,
  LOOPBACK_DEVICE,
  ROUTE_TABLE_FROM_LANES,
  ROUTE_TABLE_HANDED_ON,
  ROUTE_TABLE_MAIN,
  ROUTE_TABLE_NODE,
  ROUTE_TABLE_NODE_PUBLIC,
  ROUTE_TABLE_NO_POD,
  RULE_FROM_LANES,
  RULE_KNOWN_POD,
  RULE_NODE,
  RULE_NODE_OWN_SOURCE,
  RULE_NO_POD,
  type RouteAgent,
  VXLAN_DEVICE,
  laneCable,
} from '../../model/model.ts'
import {
  METRIC_VIA_GATEWAY,
  type NodeRouteWorld,
  type OverlayNode,
  type OwnRanges,
  type PlanProblem,
  type SysctlSetting,
  hopTo,
  overlayGateway,
  overlayMac,
  ownCluster,
} from '../world/world.ts'
import { planNodeSends, planOverlayGuard } from './plan-overlay-drops.ts'
import { type Detours, type GatewayNode, NO_DETOURS } from './plan-gateways.ts'

/** What both families share. */
export interface RouteContext {
  readonly self: OverlayNode
  readonly others: readonly OverlayNode[]
  readonly underlayMtu: number
  readonly overlayMtu: number
  /** Devices of the lane that this node serves. Empty if it serves none. */
  readonly laneDevices: readonly string[]
  readonly clusters: readonly ClusterPath[]
  readonly detours: Detours
}

/** The gateway nodes towards a cluster. */
export interface ClusterPath {
  readonly cluster: string
  readonly index: number
  /** Prefixes of both families. */
  readonly prefixes: readonly Prefix[]
  readonly gateways: readonly GatewayNode[]
  readonly mtu: number
}

export interface FamilyRoutes {
  readonly neighbours: readonly Neighbour[]
  readonly routes: readonly Route[]
  readonly rules: readonly Rule[]
  /** Rules that are in the kernel before the overlay device, and as long as it is. */
  readonly guard: readonly Rule[]
  readonly sysctls: readonly SysctlSetting[]
  readonly problems: readonly PlanProblem[]
}

/** Metric of `unreachable` routes, which come after all others. */
export const METRIC_UNREACHABLE = 0x7fffffff

/** `own` are this node's ranges of the family. */
export function planFamilyRoutes(
  world: NodeRouteWorld,
  context: RouteContext,
  family: Family,
  own: OwnRanges,
): FamilyRoutes {
  const address = ownPodAddress(
    world.facts.addresses.map((entry) => entry.address),
    own.ranges,
  )
  const source = address === undefined ? {} : { source: address }
  const pods =
    context.laneDevices.length === 0
      ? { routes: [], problems: [], allKnown: true }
      : planPodRoutes(world, { ...context, own: [...own.ranges, ...own.networks] }, family)
  const paths = context.clusters.map((path) => ({
    ...path,
    destinations: ofFamily(path.prefixes, family).map(formatPrefix),
  }))
  const remote = paths.flatMap(({ destinations, gateways, mtu }): Route[] => {
    const hops = nextHops(context, gateways, family)
    if (hops.length === 0) return []
    return destinations.map((destination) => {
      const rest = { mtu: familyMtu(mtu, family), ...source }
      return { ...viaOverlay(destination, hops, rest), table: tableOf(world, destination) }
    })
  })
  const isClosed = closesRouting(world)
  const podCIDRs = podPrefixes(ownCluster(world), family)
  const sends = planNodeSends({
    family,
    addresses: world.facts.addresses,
    pods: podCIDRs,
    destinations: isClosed
      ? routedForNode(
          world,
          paths.flatMap(({ destinations }) => destinations),
        )
      : [],
  })
  const range = formatPrefix(clustersetRange(world, family))
  const mtus = context.clusters.map((path) => path.mtu)
  const narrowest = mtus.length === 0 ? {} : { mtu: familyMtu(Math.min(...mtus), family) }
  return {
    neighbours: context.others.map((node) => ({
      device: VXLAN_DEVICE,
      address: overlayGateway(node, family),
      mac: overlayMac(node.address),
    })),
    routes: [
      ...pods.routes,
      ...remote,
      /*
       * If a program on the node itself calls a clusterset IP, the kernel looks up a route and picks the source address
       * before the output hook balances the connection and routes it again. So the range needs a route that does not
       * refuse. No packet leaves by it: the nft table refuses packets that were not balanced (plan-node-table.ts).
       */
      viaOverlay(range, [{ device: VXLAN_DEVICE }], { ...narrowest, ...source }),
      ...(pods.allKnown ? noPodRoutes(world, family) : []),
      ...lastResort(world, [...ourRanges(world, family), ...paths.flatMap(({ destinations }) => destinations)]),
      ...sends.routes,
    ],
    rules: [
      ...sends.rules,
      ...rulesFor(context, family),
      ...(pods.allKnown ? noPodRules(context, family) : []),
      ...publicRules(world, {
        family,
        source: address,
        destinations: paths.flatMap(({ destinations }) => destinations),
      }),
    ],
    guard: isClosed ? planOverlayGuard(podCIDRs, family) : [],
    sysctls: settings(family, isClosed),
    problems: pods.problems,
  }
}

/** A link with a smaller MTU has no IPv6 (see the gateway's routes), so the remaining links carry at least this. */
function familyMtu(mtu: number, family: Family): number {
  return family === 6 ? Math.max(mtu, IPV6_MIN_MTU) : mtu
}

/**
 * For a node that cannot carry the family: packets for the clusterset end here and do not use the node's default route.
 */
export function planNoWay(
  world: NodeRouteWorld,
  { clusters }: Pick<RouteContext, 'clusters'>,
  family: Family,
): FamilyRoutes {
  const destinations = clusters.flatMap(({ prefixes }) => ofFamily(prefixes, family)).map(formatPrefix)
  return {
    neighbours: [],
    routes: lastResort(world, [...ourRanges(world, family), ...destinations]),
    rules: [
      ...rulesFor({ laneDevices: [], detours: NO_DETOURS }, family),
      ...publicRules(world, { family, source: undefined, destinations }),
    ],
    guard: closesRouting(world) ? planOverlayGuard(podPrefixes(ownCluster(world), family), family) : [],
    sysctls: [],
    problems: [],
  }
}

/** The node's own packets to prefixes in public space leave by its own routes. */
function routedForNode(world: NodeRouteWorld, destinations: readonly string[]): string[] {
  return [...new Set(destinations)].filter((destination) => tableOf(world, destination) === ROUTE_TABLE_NODE)
}

/** Range of the clusterset IPs of this clusterset. Throws InvalidAddressError. */
export function clustersetRange(world: Pick<NodeRouteWorld, 'clustersetIpRange'>, family: Family): Prefix {
  const range = parsePrefix(world.clustersetIpRange, 'clustersetIpRange')
  return family === 4 ? range : clustersetIpv6Range(range)
}

function ourRanges(world: NodeRouteWorld, family: Family): string[] {
  const range = formatPrefix(clustersetRange(world, family))
  return family === 4 ? [world.globalRange, range] : [range]
}

function viaOverlay(
  destination: string,
  hops: readonly NextHop[],
  rest: { readonly mtu?: number; readonly source?: string },
): Route {
  return {
    table: ROUTE_TABLE_NODE,
    destination,
    type: 'unicast',
    nextHops: hops,
    metric: METRIC_VIA_GATEWAY,
    ...rest,
  }
}

// The gateway routes over this node's own lanes (table 7311), so only the other gateway nodes are used here.
function nextHops(context: RouteContext, gateways: readonly GatewayNode[], family: Family): NextHop[] {
  const usable = gateways.flatMap((gateway) => {
    const node = context.others.find((other) => other.name === gateway.node)
    return node === undefined ? [] : [{ hop: hopTo(node, family), lanes: gateway.lanes }]
  })
  const even = new Set(usable.map((u) => u.lanes)).size <= 1
  return usable.map(({ hop, lanes }) => (even ? hop : { ...hop, weight: Math.min(lanes, 256) }))
}

function lastResort(world: Ranges, destinations: readonly string[]): Route[] {
  return [...new Set(destinations)].map((destination) => ({
    table: tableOf(world, destination),
    destination,
    type: 'unreachable',
    nextHops: [],
    metric: METRIC_UNREACHABLE,
  }))
}

function rulesFor({ laneDevices, detours }: Pick<RouteContext, 'laneDevices' | 'detours'>, family: Family): Rule[] {
  const incoming = laneDevices.flatMap((device) => (family === 4 ? [device, laneCable(device).rx] : [device]))
  const fromLanes = incoming.map((inputDevice): Rule => ({
    priority: RULE_FROM_LANES,
    table: ROUTE_TABLE_FROM_LANES,
    inputDevice,
  }))
  const handedOn = { priority: RULE_FROM_LANES, table: ROUTE_TABLE_HANDED_ON, inputDevice: VXLAN_DEVICE }
  const detoured = laneDevices.length > 0 && detours.mayGet ? [handedOn] : []
  const rules: Rule[] = [
    ...fromLanes,
    ...detoured,
    { priority: RULE_NODE, table: ROUTE_TABLE_NODE, exceptMark: LANE_MARK },
  ]
  return family === 4 ? rules : rules.map((rule) => ({ ...rule, family }))
}

/**
 * Packets from a lane or the overlay to a pod range of this cluster follow the CNI's routes, but not the default route,
 * which would lead them out of the cluster unencrypted. Local pods and the node's own traffic are not affected.
 */
function noPodRoutes(world: NodeRouteWorld, family: Family): Route[] {
  return podPrefixes(ownCluster(world), family).map((prefix) => ({
    table: ROUTE_TABLE_NO_POD,
    destination: formatPrefix(prefix),
    type: 'unreachable',
    nextHops: [],
    metric: METRIC_UNREACHABLE,
  }))
}

function noPodRules({ laneDevices }: Pick<RouteContext, 'laneDevices'>, family: Family): Rule[] {
  const incoming = laneDevices.flatMap((device) => (family === 4 ? [device, laneCable(device).rx] : [device]))
  return [...incoming, VXLAN_DEVICE].flatMap((inputDevice): Rule[] => {
    const base = { inputDevice, ...(family === 6 ? { family } : {}) }
    return [
      { ...base, priority: RULE_KNOWN_POD, table: ROUTE_TABLE_MAIN, exceptDefault: true },
      { ...base, priority: RULE_NO_POD, table: ROUTE_TABLE_NO_POD },
    ]
  })
}

type Ranges = Pick<NodeRouteWorld, 'globalRange' | 'clustersetIpRange'>

// Ranges of this clusterset use the normal table, even inside public space.
function tableOf({ globalRange, clustersetIpRange }: Ranges, destination: string): number {
  const prefix = parsePrefix(destination)
  const isOurs = destination === clustersetIpRange || !isPublicSpace(prefix, globalRange)
  return isOurs ? ROUTE_TABLE_NODE : ROUTE_TABLE_NODE_PUBLIC
}

interface PublicInit {
  readonly family: Family
  /** Address of this node among the pods. */
  readonly source: string | undefined
  readonly destinations: readonly string[]
}

/**
 * Packets of this node use this table only if their source is the node's address among the pods (model/kernel-ids.ts).
 */
function publicRules(world: NodeRouteWorld, { family, source, destinations }: PublicInit): Rule[] {
  if (!destinations.some((destination) => tableOf(world, destination) === ROUTE_TABLE_NODE_PUBLIC)) return []
  const base = { priority: RULE_NODE, table: ROUTE_TABLE_NODE_PUBLIC, ...(family === 6 ? { family } : {}) } as const
  const own = source !== undefined && !underlayAddresses(world.nodes).includes(source)
  return [
    { ...base, exceptInputDevice: LOOPBACK_DEVICE },
    ...(own ? [{ ...base, priority: RULE_NODE_OWN_SOURCE, inputDevice: LOOPBACK_DEVICE, source }] : []),
  ]
}

/** Whether rules of routing drop what the access rules have not admitted. */
function closesRouting({ exposure = 'pods', failClosed = false }: NodeRouteWorld): boolean {
  return failClosed && exposure !== 'pods'
}

function settings(family: Family, isClosed: boolean): SysctlSetting[] {
  if (family === 6) {
    return [
      { name: IPV6_FORWARDING, value: '1' },
      { name: IPV6_HASH_POLICY, value: '1', insteadOf: '0' },
      ...overlaySettings(family),
    ]
  }
  return [
    { name: IP_FORWARDING, value: '1' },
    { name: HASH_POLICY, value: '1', insteadOf: '0' },
    ...(isClosed ? [{ name: SOURCE_VALID_MARK, value: '1', insteadOf: '0' }] : []),
    ...overlaySettings(family),
  ]
}

/** Settings of the overlay device that differ from the host's defaults. A kernel may lack some of them. */
function overlaySettings(family: Family): SysctlSetting[] {
  return deviceSettings(VXLAN_DEVICE, [family]).map((setting) => ({ ...setting, ifPresent: true }))
}

// Table 7310: packets from a lane to the pods of the other nodes. Table 7316: the same for packets that another gateway
// node has forwarded, which go directly to the node. Pure.

interface PodRoutes {
  readonly routes: readonly Route[]
  readonly problems: readonly PlanProblem[]
  /** The pod ranges of every node are known. */
  readonly allKnown: boolean
}

interface PodRouteWorld {
  readonly self: string
  readonly clusters: readonly Cluster[]
  readonly routeAgents: readonly RouteAgent[]
}

interface PodRouteContext {
  readonly self: OverlayNode
  readonly others: readonly OverlayNode[]
  /** Ranges of this node, of the family. */
  readonly own: readonly Prefix[]
  readonly overlayMtu: number
  readonly detours: Detours
}

/**
 * Pods of other nodes are reached over the overlay, so the underlay need not know pod addresses. Addresses of unknown
 * pods are left to the main table, which has the CNI's own routes.
 */
function planPodRoutes(world: PodRouteWorld, context: PodRouteContext, family: Family): PodRoutes {
  const podCIDRs = podPrefixes(ownCluster(world), family)
  const agents = new Map(world.routeAgents.map((agent) => [agent.metadata.name, agent]))
  const nodes = new Map(context.others.map((node) => [node.name, node]))
  const claims = context.others.map(({ name, object }) => nodeClaim(object, agents.get(name), podCIDRs))
  const hasSpec = specRanges(context.self.object, podCIDRs).length > 0
  const self = { node: context.self.name, ranges: context.own, hasSpec }
  const { elsewhere, exceptions, contested, refused } = podPlaces(self.node, [self, ...claims])
  const { by, mayGet } = context.detours
  const routesOf = (table: number, hopNode: (to: OverlayNode) => OverlayNode): Route[] => {
    const base = { table, metric: METRIC_VIA_GATEWAY }
    const away = elsewhere.flatMap(({ node, prefix }): Route[] => {
      const to = nodes.get(node)
      if (to === undefined) return []
      const nextHops = [hopTo(hopNode(to), family)]
      return [{ ...base, destination: formatPrefix(prefix), type: 'unicast', nextHops, mtu: context.overlayMtu }]
    })
    const thrown = exceptions.map((prefix): Route => {
      return { ...base, destination: formatPrefix(prefix), type: 'throw', nextHops: [] }
    })
    return [...away, ...thrown]
  }
  const silent = claims.filter(({ ranges }) => ranges.length === 0)
  const isCut = [...agents.values()].some(({ status }) => (status?.podRanges?.length ?? 0) >= MAX_POD_RANGES)
  return {
    routes: [
      ...routesOf(ROUTE_TABLE_FROM_LANES, (to) => by.get(to.name) ?? to),
      ...(mayGet ? routesOf(ROUTE_TABLE_HANDED_ON, (to) => to) : []),
    ],
    allKnown: silent.length === 0 && contested.length === 0 && !isCut,
    problems: [
      ...silent.map(({ node }) => ({
        subject: `Node ${node}`,
        reason: 'PodRangeUnknown' as const,
        message: `neither spec.podCIDR nor its RouteAgent states its ${family === 4 ? '' : 'IPv6 '}pod range`,
      })),
      ...contested.map(({ prefix, nodes: several }) => ({
        subject: `Pod range ${formatPrefix(prefix)}`,
        reason: 'PodRangeContested' as const,
        message: `claimed by nodes ${several.join(' and ')}`,
      })),
      ...refused.map(({ node, owner, prefix, count }) => ({
        subject: `Node ${node}`,
        reason: 'PodRangeForeign' as const,
        message: `claims pod ranges of node ${owner}, which keeps them: ${formatPrefix(prefix)}${count > 1 ? ` and ${count - 1} more` : ''}`,
      })),
    ],
  }
}
