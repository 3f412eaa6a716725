/** Routes over the lanes and the rule that leads to them. Pure. */
import { type Prefix, containsAddress, parseAddress, parsePrefix } from '../model/ip.ts'
import { LANE_MARK, ROUTE_TABLE_LANES, RULE_LANES } from '../model/kernel-ids.ts'
import type { NextHop, Route, Rule } from '../kernel/route-table.ts'
import type { LanePlan } from './plan-lanes.ts'
import { podClaims, podPrefixes } from './pod-claims.ts'
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
  return { rule: { priority: RULE_LANES, table: ROUTE_TABLE_LANES, exceptMark: LANE_MARK }, routes }
}

/**
 * An IPv4 address of this node inside its cluster's pod CIDRs, preferably inside the node's own: what the node sends
 * from there can be translated, and answered, like a pod's. Undefined when it has none.
 */
export function podSideAddress(
  world: Pick<GatewayWorld, 'addresses' | 'own' | 'nodes' | 'node' | 'routeAgents'>,
): string | undefined {
  const addresses = world.addresses.map((entry) => entry.address.split('/')[0] ?? '').sort()
  const inside = (prefixes: readonly Prefix[]): string | undefined =>
    addresses.find((text) => prefixes.some((prefix) => containsAddress(prefix, parseAddress(text))))
  const own = podClaims(world).find((claim) => claim.node === world.node)
  return inside(own?.ranges ?? []) ?? inside(podPrefixes(world.own))
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
