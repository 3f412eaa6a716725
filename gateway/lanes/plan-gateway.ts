/** Makes the whole plan of a gateway node, its Endpoints, and the text of the plan. Pure. */
import { type NftStatement, formatNft } from '../../kernel/nft/nft.ts'
import { type Rule, formatGroup, formatHop, formatRoute, formatRule } from '../../kernel/route/route.ts'
import {
  type Family,
  type PrefixPair,
  ofFamily,
  plannedFamilies,
  podPrefixes,
  prefixPairs,
} from '../../model/addresses/addresses.ts'
import {
  CAPABILITY_ALL_PAIRS,
  CAPABILITY_DRAINING,
  CAPABILITY_PORT_MAPPED,
  CAPABILITY_RELAY,
  CAPABILITY_RELAY_SHARES_PORTS,
  CAPABILITY_SIZED_PROBES,
} from '../../model/lanes/lanes.ts'
import { type Endpoint, endpointName, ownedByNode } from '../../model/model.ts'
import { problemText } from '../../model/reasons/reasons.ts'
import type { CableRules } from '../cable/cable.ts'
import { type LanesPlan, planLanes } from '../links/links.ts'
import { planTranslation } from '../nft/nft.ts'
import { isOwnLaneHidden, isPortMapped, planCandidates } from '../reach/reach.ts'
import type { GatewayWorld } from '../world/world.ts'
import { planLaneGuard } from './plan-lane-guard.ts'
import { type LaneRoutesPlan, planLaneRoutes, podsElsewhere } from './plan-lane-routes.ts'

export interface GatewayPlan {
  readonly lanes: LanesPlan
  readonly routes: LaneRoutesPlan
  /** Rules that are in the kernel before a lane, and as long as it is. */
  readonly guard: readonly Rule[]
  readonly nft: readonly NftStatement[]
  /** The table of family ip6. Without statements, and so without a table, if there is no IPv6 to carry. */
  readonly nft6: readonly NftStatement[]
}

/** Throws InvalidAddressError if this cluster's own Cluster object is not usable. */
export function planGateway(world: GatewayWorld, rules: CableRules): GatewayPlan {
  const lanes = planLanes(world, rules)
  const pairs = prefixPairs(world.own.spec)
  const table = (family: Family): NftStatement[] => planTable({ world, lanes, pairs, family })
  const nft6 = plannedFamilies(world.own).includes(6) && lanes.lanes.length > 0 ? table(6) : []
  const guard = planLaneGuard(world, lanes.lanes)
  return { lanes, routes: planLaneRoutes(world, lanes.lanes), guard, nft: table(4), nft6 }
}

interface TableInit {
  readonly world: GatewayWorld
  readonly lanes: LanesPlan
  /** Pairs of both families. */
  readonly pairs: readonly PrefixPair[]
  readonly family: Family
}

function planTable({ world, lanes, pairs, family }: TableInit): NftStatement[] {
  // The policy covers these devices until they are removed.
  const leftover = world.laneDevices.filter((name) => !lanes.lanes.some(({ device }) => device === name))
  return planTranslation({
    family,
    pairs: pairs.filter((pair) => pair.own.family === family),
    podCIDRs: podPrefixes(world.own, family),
    elsewhere: podsElsewhere(world, family),
    isOnlyGateway: world.isOnlyGateway === true,
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
    exposure: world.exposure ?? 'pods',
  })
}

// What this node publishes to the other clusters about its lanes. Pure.

/** One Endpoint for each existing lane. Each of its devices has the same identity. The Node owns the Endpoint. */
export function planEndpoints(world: GatewayWorld, rules: CableRules): Endpoint[] {
  const owned = ownedByNode(world.nodes.find(({ metadata }) => metadata.name === world.node))
  return world.lanes.flatMap((lane) => {
    const [state] = world.laneStates.values()
    if (state === undefined) return []
    const cluster = world.own.spec.id
    const isLeaving = world.leaving === true || world.returning === true
    const fields = rules.endpointFields(state, world.nextIdentity)
    return {
      apiVersion: 'sealane.io/v1alpha1',
      kind: 'Endpoint',
      metadata: { name: endpointName(cluster, world.node, lane.lane), ...owned },
      spec: {
        cluster,
        node: world.node,
        lane: lane.lane,
        ...fields,
        capabilities: [
          ...fields.capabilities,
          CAPABILITY_ALL_PAIRS,
          CAPABILITY_SIZED_PROBES,
          // Links that a leaving gateway relays are to move to another relay before it is gone.
          ...(lane.relay === true && !isLeaving && !isOwnLaneHidden(world, lane)
            ? [CAPABILITY_RELAY, CAPABILITY_RELAY_SHARES_PORTS]
            : []),
          ...(isPortMapped(world, lane) ? [CAPABILITY_PORT_MAPPED] : []),
          ...(isLeaving ? [CAPABILITY_DRAINING] : []),
          ...(world.statedCosts ?? []),
        ],
        candidates: planCandidates(world, lane),
      },
    } satisfies Endpoint
  })
}

// The plan as text of ip, nft and the cable (wg), for the dry run, /debug/plan and golden tests.

/** The text of everything that would be applied. Contains no private key. */
export function describeGatewayPlan(world: GatewayWorld, rules: CableRules): string {
  return gatewayPlanText(planGateway(world, rules), rules)
}

export function gatewayPlanText(plan: GatewayPlan, rules: CableRules): string {
  const refusals = plan.lanes.refusals.map((refusal) => `# refused: ${refusal.subject}: ${problemText(refusal)}\n`)
  const lanes = plan.lanes.lanes.map((lane) => rules.plan(lane).text)
  const { rules: first, nextHops, routes: last } = plan.routes
  const hopLines = [...nextHops.hops.map(formatHop), ...nextHops.groups.map(formatGroup)]
  const routes = [...[...plan.guard, ...first].map(formatRule), ...hopLines, ...last.map(formatRoute)]
  const tables = formatNft(plan.nft, 'ip') + formatNft(plan.nft6, 'ip6')
  return [...refusals, ...lanes, `${routes.join('\n')}\n`, tables].join('\n')
}
