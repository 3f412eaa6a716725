/** Finds the nodes of this cluster that lead to a remote cluster, from the reports of the gateways. Pure. */
import type { ObjectChange } from '../../kubeapi/kubeapi.ts'
import { FAMILIES } from '../../model/addresses/addresses.ts'
import { CAPABILITY_DRAINING, MAX_LANE, lanesUp } from '../../model/lanes/lanes.ts'
import { type Endpoint, type Gateway, WIREGUARD_OVERHEAD_IPV6 } from '../../model/model.ts'
import { type NodeRouteWorld, type OverlayNode, overlayGateway } from '../world/world.ts'

export interface GatewayNode {
  readonly node: string
  /** Its lane number, or the lowest one if there are several. */
  readonly lane: number
  /** Lanes towards the cluster that are up. 1 while this is not known. */
  readonly lanes: number
  /** The node is about to leave: other gateway nodes are preferred. */
  readonly leaves: boolean
  /** All its links to the cluster flap: other gateway nodes are preferred. */
  readonly flaps: boolean
  /** MTU of packets that pass all of those lanes. Undefined while the gateway has not reported it. */
  readonly mtu: number | undefined
}

/**
 * The gateway nodes that have a lane up to `cluster`, sorted by name. If no reporting gateway has a link, gateways that
 * have not reported yet are used, from this cluster's own Endpoints, because they may work. So before the first report
 * every node that serves a lane is used.
 */
export function gatewaysTowards(
  cluster: string,
  ownEndpoints: readonly Endpoint[],
  gateways: readonly Gateway[],
): GatewayNode[] {
  const reporting = gateways.filter((gateway) => gateway.status !== undefined)
  const up = lanesUp(cluster, gateways, ownEndpoints)
  const leaving = new Set(ownEndpoints.filter(isDraining).map(({ spec }) => spec.node))
  if (up.size > 0) {
    const found = reporting.flatMap((gateway) => gatewayNode(cluster, gateway, up, leaving.has(gateway.metadata.name)))
    const flapping = new Set(reporting.filter((one) => flaps(cluster, one)).map(({ metadata }) => metadata.name))
    return found.map((one) => ({ ...one, flaps: flapping.has(one.node) })).sort(byNode)
  }
  const reported = new Set(reporting.map((gateway) => gateway.metadata.name))
  const unknown = ownEndpoints.map(({ spec }) => spec).filter(({ node }) => !reported.has(node))
  return [...Map.groupBy(unknown, ({ node }) => node)]
    .map(([node, of]) => {
      const lane = Math.min(...of.map((one) => one.lane))
      return { node, lane, lanes: 1, leaves: leaving.has(node), flaps: false, mtu: undefined }
    })
    .sort(byNode)
}

/**
 * Whether the change may affect routes. Gateways write every few seconds that they are alive and how long their probes
 * take. Otherwise each node of the cluster would read its whole kernel for each of these writes.
 */
export function changesRoutes(change: ObjectChange<Gateway> | undefined): boolean {
  if (change?.type !== 'set' || change.previous === undefined) return true
  // The same object is interpreted differently than before: HeardGateways.
  if (change.previous === change.object) return true
  return routesOf(change.previous) !== routesOf(change.object)
}

function routesOf({ metadata: { labels, annotations }, status }: Gateway): string {
  const connections = status?.connections.map(({ cluster, lane, remoteLane, endpoint, state, held, mtu }) => {
    return { cluster, lane, remoteLane, endpoint, state, held, mtu }
  })
  const conditions = status?.conditions?.map(({ type, status: is, reason }) => ({ type, is, reason }))
  return JSON.stringify({ labels, annotations, lanes: status?.lanes, connections, conditions })
}

/**
 * Numbers the hops to gateway nodes in next-hop groups, by their gateway addresses on the overlay in both families. The
 * number is the lane number, so that the node which takes over a lane also takes over its flows. If two nodes have the
 * same number during a handover, the second by name gets another one.
 */
export function hopNumbers(
  paths: readonly { readonly gateways: readonly GatewayNode[] }[],
  nodes: readonly OverlayNode[],
): ReadonlyMap<string, number> {
  const lanes = new Map(paths.flatMap(({ gateways }) => gateways.map(({ node, lane }) => [node, lane])))
  const taken = new Set<number>()
  const numbers = new Map<string, number>()
  for (const node of nodes) {
    let number = lanes.get(node.name)
    if (number === undefined) continue
    while (taken.has(number)) number += LANES
    taken.add(number)
    for (const family of FAMILIES) numbers.set(overlayGateway(node, family), number)
  }
  return numbers
}

const LANES = MAX_LANE + 1

/**
 * Leaves out gateways that are silent for this node's probes, have never answered them, are about to leave, or flap, as
 * long as another one is left. A flapping gateway is better than a leaving one, that is better than one that has never
 * answered, and that is better than a silent one.
 */
export function answering(
  gateways: readonly GatewayNode[],
  { silentNodes, lateGateways }: Pick<NodeRouteWorld, 'silentNodes' | 'lateGateways'>,
): GatewayNode[] {
  const maybe = gateways.filter(({ node }) => silentNodes?.has(node) !== true)
  const heard = maybe.filter(({ node }) => lateGateways?.has(node) !== true)
  const stay = heard.filter(({ leaves }) => !leaves)
  const steady = stay.filter((one) => !one.flaps)
  return [steady, stay, heard, maybe, [...gateways]].find((some) => some.length > 0) ?? []
}

/** The smallest MTU of a lane over this underlay, used while no gateway has reported its MTU. */
export function assumedLaneMtu(underlayMtu: number): number {
  return underlayMtu - WIREGUARD_OVERHEAD_IPV6
}

export function isDraining({ spec }: Endpoint): boolean {
  return spec.capabilities.includes(CAPABILITY_DRAINING)
}

function flaps(cluster: string, { status }: Gateway): boolean {
  const up = (status?.connections ?? []).filter((one) => one.cluster === cluster && one.state === 'up')
  return up.length > 0 && up.every(({ held }) => held === true)
}

function gatewayNode(
  cluster: string,
  { metadata, status }: Gateway,
  up: ReturnType<typeof lanesUp>,
  leaves: boolean,
): Omit<GatewayNode, 'flaps'>[] {
  const lanes = up.get(metadata.name)
  if (lanes === undefined) return []
  const devices = (status?.lanes ?? []).filter((lane) => lanes.has(lane.lane)).map((lane) => lane.mtu)
  const links = (status?.connections ?? []).filter((one) => one.cluster === cluster && one.state === 'up')
  // The device is wide enough for all clusters. The path to this one may be narrower.
  const mtus = [...devices, ...links.flatMap(({ lane, mtu }) => (lanes.has(lane) && mtu !== undefined ? [mtu] : []))]
  return [
    {
      node: metadata.name,
      lane: Math.min(...lanes),
      lanes: lanes.size,
      leaves,
      mtu: mtus.length === 0 ? undefined : Math.min(...mtus),
    },
  ]
}

function byNode(a: GatewayNode, b: GatewayNode): number {
  return a.node < b.node ? -1 : a.node > b.node ? 1 : 0
}

// How a gateway node sends packets to nodes that its own overlay no longer reaches: through another gateway node, which
// forwards them to the node itself and never to a third one (table 7316). Pure.
//
//   lane ─► gateway node ─✗─ worker
//   └─► other gateway node ─► worker

export interface Detours {
  /** There is another gateway node, which may forward packets to this one. */
  readonly mayGet: boolean
  /** The gateway node to use, by the name of the destination node. Without an entry, packets go directly. */
  readonly by: ReadonlyMap<string, OverlayNode>
}

export const NO_DETOURS: Detours = { mayGet: false, by: new Map() }

interface DetoursInit {
  readonly others: readonly OverlayNode[]
  readonly ownEndpoints: readonly Endpoint[]
  /** Nodes that answered this node and do not now. */
  readonly silent: ReadonlySet<string>
}

/** Uses the gateway node with the lowest lane number that answers and stays, or else that answers. */
export function planDetours({ others, ownEndpoints, silent }: DetoursInit): Detours {
  const nodes = new Map(others.map((node) => [node.name, node]))
  const sorted = ownEndpoints.toSorted((a, b) => Number(isDraining(a)) - Number(isDraining(b)) || byLane(a, b))
  const gateways = sorted.flatMap(({ spec }) => nodes.get(spec.node) ?? [])
  const relay = gateways.find(({ name }) => !silent.has(name))
  const lost = others.filter(({ name }) => silent.has(name))
  const by = relay === undefined ? [] : lost.map(({ name }) => [name, relay] as const)
  return { mayGet: gateways.length > 0, by: new Map(by) }
}

function byLane(a: Endpoint, b: Endpoint): number {
  return a.spec.lane - b.spec.lane || (a.spec.node < b.spec.node ? -1 : 1)
}
