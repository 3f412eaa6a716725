/** The whole plan of a gateway node from one world. Pure. */
import { type PrefixPair, plannedFamilies, prefixPairs } from '../model/addresses/addressing.ts'
import { type Family, ofFamily } from '../model/addresses/ip.ts'
import { podPrefixes } from '../model/addresses/pod-ranges.ts'
import type { NftStatement } from '../kernel/nft/nft-transaction.ts'
import { type LaneRoutesPlan, planLaneRoutes } from './routes/plan-lane-routes.ts'
import { type LanesPlan, planLanes } from './cable/plan-lanes.ts'
import { planTranslation } from './nft/plan-translation.ts'
import { podsElsewhere } from './remotes/pod-claims.ts'
import type { CableRules } from './cable/cable.ts'
import type { GatewayWorld } from './world.ts'

export interface GatewayPlan {
  readonly lanes: LanesPlan
  readonly routes: LaneRoutesPlan
  readonly nft: readonly NftStatement[]
  /** The table of family ip6; no statement where there is no IPv6 to carry, and so no table. */
  readonly nft6: readonly NftStatement[]
}

/** Throws InvalidAddressError when this cluster's own Cluster object is not usable. */
export function planGateway(world: GatewayWorld, rules: CableRules): GatewayPlan {
  const lanes = planLanes(world, rules)
  const pairs = prefixPairs(world.own.spec)
  const table = (family: Family): NftStatement[] => planTable({ world, lanes, pairs, family })
  const nft6 = plannedFamilies(world.own).includes(6) && lanes.lanes.length > 0 ? table(6) : []
  return { lanes, routes: planLaneRoutes(world, lanes.lanes), nft: table(4), nft6 }
}

interface TableInit {
  readonly world: GatewayWorld
  readonly lanes: LanesPlan
  /** Of both families. */
  readonly pairs: readonly PrefixPair[]
  readonly family: Family
}

function planTable({ world, lanes, pairs, family }: TableInit): NftStatement[] {
  // Until they are gone the policy holds for them too.
  const leftover = world.laneDevices.filter((name) => !lanes.lanes.some(({ device }) => device === name))
  return planTranslation({
    family,
    pairs: pairs.filter((pair) => pair.own.family === family),
    podCIDRs: podPrefixes(world.own, family),
    elsewhere: podsElsewhere(world, family),
    // Lane addresses are IPv4.
    lanes: [
      ...lanes.lanes.map(({ device, address }) => ({
        device,
        ...(family === 4 ? { address: address.replace('/32', '') } : {}),
      })),
      ...leftover.map((device) => ({ device })),
    ],
    remotes: lanes.clusters.flatMap((cluster) => ofFamily(cluster.prefixes, family)),
    openPorts: world.openPorts ?? [],
  })
}
