/** The plans in the tools' own languages: for --dry-run, /debug/plan, the log and the golden tests. Pure. */
import {
  formatForwardingEntry,
  formatLink,
  formatLinkChange,
  formatNeighbour,
  formatRoute,
  formatRule,
} from '../kernel/format-ip.ts'
import { formatNft } from '../kernel/format-nft.ts'
import { type NftStatement } from '../kernel/nft-transaction.ts'
import { parsePrefix } from '../model/ip.ts'
import { NFT_TABLE_NODE } from '../model/kernel-ids.ts'
import type { EndpointSlice, ServiceImport } from '../model/objects.ts'
import { reachableClusters } from '../model/reachability.ts'
import { NO_SCAFFOLD, balanceElements, elementStatements, scaffold } from './balance-elements.ts'
import { LocalBackends, SET_HAIRPIN } from './local-backends.ts'
import { BalancePlanner } from './plan-balancing.ts'
import { nodeNftWorld, planNodeNft } from './plan-node-nft.ts'
import { type NodeRoutePlan, type NodeRouteWorld, planNodeRoutes } from './plan-node-routes.ts'
import type { PortPlan, ServiceContext } from './plan-service.ts'

export interface RouteAgentWorld extends NodeRouteWorld {
  readonly imports: readonly ServiceImport[]
  readonly slices: readonly EndpointSlice[]
}

/** What `up` would do on this node, as `ip`, `bridge`, `sysctl` and `nft` text. */
export function describeRouteAgentPlan(world: RouteAgentWorld): string {
  const planner = new BalancePlanner(serviceContext(world))
  planner.replaceAll(world.imports, world.slices)
  planner.takeChanges()
  return `${describeRoutes(planNodeRoutes(world))}\n# nft -f -\n${formatNft(fullTable(world, planner.ports()))}`
}

export function describeRoutes(plan: NodeRoutePlan): string {
  if (!plan.ok) return `# ${plan.reason}\n`
  const lines = [
    ...plan.problems.map((p) => `# left out: ${p.subject}: ${p.reason}`),
    formatLink(plan.link),
    formatLinkChange(plan.link.name, { up: true }),
    ...plan.sysctls.map((s) => `sysctl -w ${s.name}=${s.value}`),
    ...plan.neighbours.map(formatNeighbour),
    ...plan.forwarding.map(formatForwardingEntry),
    ...plan.routes.map(formatRoute),
    ...plan.rules.map(formatRule),
  ]
  return `${lines.join('\n')}\n`
}

export function serviceContext(world: Omit<NodeRouteWorld, 'facts'>): ServiceContext {
  return {
    node: world.node,
    clustersetIpRange: parsePrefix(world.clustersetIpRange, 'clustersetIpRange'),
    reachable: reachableClusters(world.self, world.gateways),
  }
}

/** One transaction that makes the whole table from nothing, or in place of an older one, at one stroke. */
export function fullTable(world: NodeRouteWorld, ports: ReadonlyMap<string, PortPlan>): NftStatement[] {
  const nft = nodeNftWorld(world)
  const local = new LocalBackends(nft.nodePodCidrs.map((text) => parsePrefix(text)))
  local.apply([...ports].map(([key, after]) => ({ key, before: undefined, after })))
  const elements = new Map([...balanceElements(ports), [SET_HAIRPIN, local.elements()]])
  const additions = [...elements]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([map, items]) => ({
      map,
      remove: [],
      add: [...items].map(([key, value]) => (value === undefined ? { key } : { key, value })),
    }))
  return [
    // "add" first, so that "delete" finds a table whether or not there was one.
    { verb: 'add-table', table: NFT_TABLE_NODE },
    { verb: 'delete-table', table: NFT_TABLE_NODE },
    { verb: 'add-table', table: NFT_TABLE_NODE },
    ...planNodeNft(nft),
    ...scaffold(ports.values(), NO_SCAFFOLD).statements,
    ...elementStatements(additions),
  ]
}
