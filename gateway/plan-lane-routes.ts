/** Routes over the lanes and the rule that leads to them. Pure. */
import { containsAddress, parseAddress, parsePrefix } from '../model/ip.ts'
import { ROUTE_TABLE_LANES } from '../model/kernel-ids.ts'
import type { NextHop, Route, Rule } from '../kernel/route-table.ts'
import type { LanePlan } from './plan-lanes.ts'
import { type GatewayWorld, healthKey } from './world.ts'

export interface LaneRoutesPlan {
  readonly rule: Rule
  readonly routes: readonly Route[]
}

/**
 * A remote prefix is routed over every lane whose connection to its cluster is up, and over none when none is: the
 * node's table then sends it to another gateway or says that it is unreachable. Lane addresses are always routed,
 * since the probes that find out whether a connection is up need them.
 */
export function planLaneRoutes(world: GatewayWorld, lanes: readonly LanePlan[]): LaneRoutesPlan {
  const source = podSideAddress(world)
  const routes: Route[] = []
  const hops = new Map<string, NextHop[]>()
  for (const lane of lanes) {
    const laneAddress = lane.address.replace('/32', '')
    for (const peer of lane.peers) {
      routes.push(laneRoute(`${peer.laneAddress}/32`, [{ device: lane.device }], laneAddress))
      if (world.health.get(healthKey(lane.lane, peer.cluster))?.state !== 'up') continue
      for (const prefix of peer.prefixes) hops.set(prefix, [...(hops.get(prefix) ?? []), { device: lane.device }])
    }
  }
  for (const [prefix, nextHops] of hops) routes.push(laneRoute(prefix, nextHops, source))
  routes.sort((a, b) => compareDestinations(a.destination, b.destination))
  return { rule: { priority: ROUTE_TABLE_LANES, table: ROUTE_TABLE_LANES }, routes }
}

/**
 * An IPv4 address of this node inside its cluster's pod CIDRs, preferably inside the node's own: what the node sends
 * from there can be translated, and answered, like a pod's. Undefined when it has none.
 */
export function podSideAddress(world: Pick<GatewayWorld, 'addresses' | 'own' | 'nodes' | 'node'>): string | undefined {
  const addresses = world.addresses.map((entry) => entry.address.split('/')[0] ?? '').sort()
  const inside = (cidrs: readonly string[]): string | undefined => {
    const prefixes = cidrs.map((text) => parsePrefix(text)).filter((prefix) => prefix.family === 4)
    return addresses.find((text) => prefixes.some((prefix) => containsAddress(prefix, parseAddress(text))))
  }
  return inside(nodePodCIDRs(world)) ?? inside(world.own.spec.podCIDRs)
}

/** The pod CIDRs of this node by its Node object; empty when it names none. */
export function nodePodCIDRs(world: Pick<GatewayWorld, 'nodes' | 'node'>): readonly string[] {
  const spec = world.nodes.find((node) => node.metadata.name === world.node)?.spec
  if (spec?.podCIDRs !== undefined && spec.podCIDRs.length > 0) return spec.podCIDRs
  return spec?.podCIDR === undefined ? [] : [spec.podCIDR]
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

function compareDestinations(a: string, b: string): number {
  const [x, y] = [parsePrefix(a), parsePrefix(b)]
  return x.value < y.value ? -1 : x.value > y.value ? 1 : x.length - y.length
}
