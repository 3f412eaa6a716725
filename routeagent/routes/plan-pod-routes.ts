/**
 * Table 7310: out of a lane, to the pods of the other nodes. Table 7316: the same for what another gateway node has
 * handed on, which goes straight to the node and nowhere else. Pure.
 */
import { type Family, type Prefix, formatPrefix } from '../../model/addresses/ip.ts'
import { ROUTE_TABLE_FROM_LANES, ROUTE_TABLE_HANDED_ON } from '../../model/kernel-ids.ts'
import type { Cluster, RouteAgent } from '../../model/objects.ts'
import { MAX_POD_RANGES, nodeClaim, podPlaces, podPrefixes, specRanges } from '../../model/addresses/pod-ranges.ts'
import type { Route } from '../../kernel/route/route-table.ts'
import { ownCluster } from './own-ranges.ts'
import type { Detours } from './plan-detours.ts'
import { METRIC_VIA_GATEWAY, type OverlayNode, type PlanProblem, hopTo } from './plan-nodes.ts'

export interface PodRoutes {
  readonly routes: readonly Route[]
  readonly problems: readonly PlanProblem[]
  /** Of every node it is known where its pods are. */
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
 * Pods of other nodes are reached over the overlay: the underlay need not know pod addresses. What nobody is known to
 * have is left to the main table, where the CNI's own routes are.
 */
export function planPodRoutes(world: PodRouteWorld, context: PodRouteContext, family: Family): PodRoutes {
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
        message: `neither spec.podCIDR nor its RouteAgent says where its ${family === 4 ? '' : 'IPv6 '}pods are`,
      })),
      ...contested.map(({ prefix, nodes: several }) => ({
        subject: `Pod range ${formatPrefix(prefix)}`,
        reason: 'PodRangeContested' as const,
        message: `claimed by nodes ${several.join(' and ')}`,
      })),
      ...refused.map(({ node, owner, prefix, count }) => ({
        subject: `Node ${node}`,
        reason: 'PodRangeForeign' as const,
        message: `claims pods of node ${owner}, which keeps them: ${formatPrefix(prefix)}${count > 1 ? ` and ${count - 1} more` : ''}`,
      })),
    ],
  }
}
