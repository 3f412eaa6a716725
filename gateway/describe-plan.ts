/** A gateway's plan in the words of ip, nft and of the cable (wg): dry run, /debug/plan and golden tests. */
import { formatRoute, formatRule } from '../kernel/route/format-ip.ts'
import { formatGroup, formatHop } from '../kernel/route/nexthop/format-next-hop.ts'
import { formatNft } from '../kernel/nft/format-nft.ts'
import { problemText } from '../model/reasons/problem.ts'
import type { CableRules } from './cable/cable.ts'
import { type GatewayPlan, planGateway } from './plan-gateway.ts'
import type { GatewayWorld } from './world.ts'

/** From the world to the text of all that would be applied. Holds no private key. */
export function describeGatewayPlan(world: GatewayWorld, rules: CableRules): string {
  return gatewayPlanText(planGateway(world, rules), rules)
}

export function gatewayPlanText(plan: GatewayPlan, rules: CableRules): string {
  const refusals = plan.lanes.refusals.map((refusal) => `# refused: ${refusal.subject}: ${problemText(refusal)}\n`)
  const lanes = plan.lanes.lanes.map((lane) => rules.plan(lane).text)
  const { rules: first, nextHops, routes: last } = plan.routes
  const ways = [...nextHops.hops.map(formatHop), ...nextHops.groups.map(formatGroup)]
  const routes = [...first.map(formatRule), ...ways, ...last.map(formatRoute)]
  const tables = formatNft(plan.nft, 'ip') + formatNft(plan.nft6, 'ip6')
  return [...refusals, ...lanes, `${routes.join('\n')}\n`, tables].join('\n')
}
