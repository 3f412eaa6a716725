/** What the parts of a node take out of its kernel, one part after the other. */
import type { GatewayDeps } from '../../gateway/deps.ts'
import { type GatewayConfig, cleanGatewayNode } from '../../gateway/main.ts'
import { Round } from '../../kernel/apply/round.ts'
import type { RouteAgentConfig } from '../../routeagent/config.ts'
import { type RouteAgentDeps, cleanRouteAgentNode } from '../../routeagent/main.ts'

export interface PartConfigs {
  readonly routeagent: RouteAgentConfig
  readonly gateway: GatewayConfig
}

/** Each part is tried, also where another one failed. Throws all that failed, when everything else has been done. */
export async function cleanParts(
  deps: GatewayDeps & RouteAgentDeps,
  { routeagent, gateway }: PartConfigs,
  signal: AbortSignal,
): Promise<void> {
  const round = new Round(deps)
  await round.attempt(() => cleanRouteAgentNode(deps, routeagent, signal))
  await round.attempt(() => cleanGatewayNode(deps, gateway, signal))
  round.finish()
}
