/** Which nodes of this cluster lead to a remote cluster, by what the gateways report. Pure. */
import type { ObjectChange } from '../../kubeapi/kubeapi.ts'
import { FAMILIES } from '../../model/addresses/addresses.ts'
import { CAPABILITY_DRAINING, MAX_LANE, lanesUp } from '../../model/lanes/lanes.ts'
import { type Endpoint, type Gateway, WIREGUARD_OVERHEAD_IPV6 } from '../../model/model.ts'
import { type OverlayNode, overlayGateway } from '../world/world.ts'

export interface GatewayNode {
  readonly node: string
  /** Its number, of several the lowest. */
  readonly lane: number
  /** Lanes towards the cluster that are up; 1 while that is unknown. */
  readonly lanes: number
  /** It is about to go: others are taken where there are others. */
  readonly leaves: boolean
  /** All its links to the cluster went down again and again: others are taken where there are others. */
  readonly flaps: boolean
  /** Of packets that get through all of those lanes; undefined while the gateway has not reported it. */
  readonly mtu: number | undefined
}

/**
 * The gateway nodes that have a lane up to `cluster`, sorted by name. Where no gateway that reports has a way, those
 * that have not reported yet are used, from this cluster's own Endpoints: they may work all the same. So before the
 * first report every node that serves a lane is used.
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
 * Whether routes may follow from the change. Gateways write every few seconds that they are there, and how long their
 * probes take; each node of the cluster would read its whole kernel for each of them.
 */
export function changesWays(change: ObjectChange<Gateway> | undefined): boolean {
  if (change?.type !== 'set' || change.previous === undefined) return true
  // The same object counts otherwise than before: HeardGateways.
  if (change.previous === change.object) return true
  return waysOf(change.previous) !== waysOf(change.object)
}

function waysOf({ metadata: { labels, annotations }, status }: Gateway): string {
  const connections = status?.connections.map(({ cluster, lane, remoteLane, endpoint, state, held, mtu }) => {
    return { cluster, lane, remoteLane, endpoint, state, held, mtu }
  })
  const conditions = status?.conditions?.map(({ type, status: is, reason }) => ({ type, is, reason }))
  return JSON.stringify({ labels, annotations, lanes: status?.lanes, connections, conditions })
}

/**
 * What the hop to a gateway node is called in groups, by its gateway address on the overlay in both families: by its
 * lane number, since whoever takes a number over takes its flows. While two have one number (it is handed over), the
 * second by name gets another.
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
 * Without those that this node's probes find silent, those that are about to go, and those whose links flap, as long as
 * another one is left. One that flaps is better than one that goes, and that is better than one that is silent.
 */
export function answering(gateways: readonly GatewayNode[], silent: ReadonlySet<string> = new Set()): GatewayNode[] {
  const heard = gateways.filter(({ node }) => !silent.has(node))
  const stay = heard.filter(({ leaves }) => !leaves)
  const steady = stay.filter((one) => !one.flaps)
  return [steady, stay, heard, [...gateways]].find((some) => some.length > 0) ?? []
}

/** What a lane over this underlay carries at least, for as long as no gateway has reported its MTU. */
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
  // The device is wide enough for all clusters; the way to this one may be narrower.
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

// How a gateway node gets packets to nodes that its own overlay does not reach any more: by another gateway node, which
// takes them on to the node itself and never to a third (table 7316). Pure.
//
// lane ─► gateway node ─✗─ worker
// └─► other gateway node ─► worker

export interface Detours {
  /** There is another gateway node, which may hand packets on to this one. */
  readonly mayGet: boolean
  /** By which gateway node to go, by the name of the node that is meant. Absent: straight. */
  readonly by: ReadonlyMap<string, OverlayNode>
}

export const NO_DETOURS: Detours = { mayGet: false, by: new Map() }

interface DetoursInit {
  readonly others: readonly OverlayNode[]
  readonly ownEndpoints: readonly Endpoint[]
  /** Nodes that answered this node, and do not now. */
  readonly silent: ReadonlySet<string>
}

/** The gateway node of the lowest number that answers and stays, or else that answers. */
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
