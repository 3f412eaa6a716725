/** The whole plan of a gateway node from one world. Pure. */
import { type PrefixPair, prefixPairs } from '../model/addressing.ts'
import { formatPrefix } from '../model/ip.ts'
import type { Endpoint } from '../model/objects.ts'
import type { NftStatement } from '../kernel/nft-transaction.ts'
import { planEndpoints } from './plan-endpoints.ts'
import { type LaneRoutesPlan, planLaneRoutes } from './plan-lane-routes.ts'
import { type LanesPlan, planLanes } from './plan-lanes.ts'
import { planTranslation } from './plan-translation.ts'
import { podPrefixes, podsElsewhere } from './pod-claims.ts'
import type { GatewayWorld } from './world.ts'

export interface GatewayPlan {
  readonly lanes: LanesPlan
  readonly routes: LaneRoutesPlan
  readonly nft: readonly NftStatement[]
  readonly endpoints: readonly Endpoint[]
}

/** Throws InvalidAddressError or InvalidClusterError when this cluster's own Cluster object is not usable. */
export function planGateway(world: GatewayWorld): GatewayPlan {
  const lanes = planLanes(world)
  const nft = planTranslation({
    pairs: checkedPairs(world),
    podCIDRs: podPrefixes(world.own),
    elsewhere: podsElsewhere(world),
    lanes: lanes.lanes.map(({ device, address }) => ({ device, address: address.replace('/32', '') })),
    remotes: lanes.clusters.flatMap((cluster) => cluster.prefixes),
  })
  return { lanes, routes: planLaneRoutes(world, lanes.lanes), nft, endpoints: planEndpoints(world) }
}

export class InvalidClusterError extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'InvalidClusterError'
  }
}

function checkedPairs({ own }: GatewayWorld): PrefixPair[] {
  const pairs = prefixPairs(own.spec)
  for (const pair of pairs) {
    if (pair.own.family === pair.global.family && pair.own.length === pair.global.length) continue
    throw new InvalidClusterError(
      `Cluster ${own.metadata.name}: global CIDR ${formatPrefix(pair.global)} for pod CIDR ${formatPrefix(pair.own)}: expected the same size`,
    )
  }
  return pairs.filter((pair) => pair.own.family === 4)
}
