/** The plans in the tools' own languages: for --dry-run, /debug/plan, the log and the golden tests. Pure. */
import {
  formatAddress,
  formatForwardingEntry,
  formatGroup,
  formatHop,
  formatLink,
  formatLinkChange,
  formatNeighbour,
  formatRoute,
  formatRule,
} from '../kernel/route/route.ts'
import { formatNft } from '../kernel/nft/nft.ts'
import { type Family, type OpenPort, plannedFamilies } from '../model/addresses/addresses.ts'
import type { EndpointSlice, ServiceImport } from '../model/model.ts'
import { problemText } from '../model/reasons/reasons.ts'
import { BalancePlanner, addressFamily, nodeNftWorld, planTable, serviceContext } from './balance/balance.ts'
import { type NodeRouteWorld, ownCluster } from './world/world.ts'
import { type NodeRoutePlan, planNodeRoutes } from './routes/routes.ts'

export interface RouteAgentWorld extends NodeRouteWorld {
  readonly imports: readonly ServiceImport[]
  readonly slices: readonly EndpointSlice[]
  readonly openPorts?: readonly OpenPort[]
}

/** What `up` would do on this node, as `ip`, `bridge`, `sysctl` and `nft` text; one transaction for each family. */
export function describeRouteAgentPlan(world: RouteAgentWorld): string {
  const families = plannedFamilies(ownCluster(world))
  return [describeRoutes(planNodeRoutes(world)), ...families.map((family) => describeTable(world, family))].join('\n')
}

function describeTable(world: RouteAgentWorld, family: Family): string {
  const planner = new BalancePlanner(serviceContext(world, family))
  planner.replaceAll(world.imports, world.slices)
  planner.takeChanges()
  const { statements } = planTable(nodeNftWorld(world, family, world.openPorts), planner.ports())
  return `# nft -f -\n${formatNft(statements, addressFamily(family).nft)}`
}

export function describeRoutes(plan: NodeRoutePlan): string {
  if (!plan.ok) return `# ${problemText(plan)}\n`
  const lines = [
    ...plan.problems.map((p) => `# left out: ${p.subject}: ${problemText(p)}`),
    formatLink(plan.link),
    formatAddress(plan.address),
    formatLinkChange(plan.link.name, { up: true }),
    ...plan.sysctls.map((s) => `sysctl -w ${s.name}=${s.value}`),
    ...plan.neighbours.map(formatNeighbour),
    ...plan.forwarding.map(formatForwardingEntry),
    ...plan.nextHops.hops.map(formatHop),
    ...plan.nextHops.groups.map(formatGroup),
    ...plan.routes.map(formatRoute),
    ...plan.rules.map(formatRule),
  ]
  return `${lines.join('\n')}\n`
}
