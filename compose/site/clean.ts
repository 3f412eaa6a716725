/** Removes everything of Sealane from this node's kernel, for a site that is no longer a member. */
import { join } from 'node:path'
import { WireguardCable } from '../../gateway/cable/cable.ts'
import { type GatewayConfig, cleanGatewayNode, gatewayConfig } from '../../gateway/main.ts'
import type { GatewayDeps } from '../../gateway/world/world.ts'
import { Round } from '../../kernel/apply/apply.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { type RouteAgentDeps, cleanRouteAgentNode } from '../../routeagent/main.ts'
import type { RouteAgentConfig } from '../../routeagent/world/world.ts'
import { StatusBoard, sealaneVersion } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { createMetrics } from '../../runtime/metrics/metrics.ts'
import { withKernel } from '../compose.ts'
import type { Site } from './part.ts'

export interface CleanNodeInit {
  readonly node: string
  readonly logger: Logger
  readonly signal: AbortSignal
}

/** Throws the kernel's errors after everything else is done. Can be repeated. */
export async function cleanNode({ config, api }: Site, init: CleanNodeInit): Promise<void> {
  const { node, logger, signal } = init
  const version = sealaneVersion()
  const stateDir = join(config.state, 'nodes', node)
  await withKernel(async (kernel) => {
    const around = { clock: new SystemClock(), metrics: createMetrics('cli'), status: new StatusBoard() }
    const cable = new WireguardCable({ ...kernel, clock: around.clock }, { stateDir })
    const deps = { ...around, ...kernel, api, cable, logger }
    const about = { node, version, stateDir }
    await cleanParts(deps, { routeagent: about, gateway: gatewayConfig({ ...about, lanes: [] }) }, signal)
  })
}

// Removes what the parts of a node wrote to its kernel, one part after the other.

interface PartConfigs {
  readonly routeagent: RouteAgentConfig
  readonly gateway: GatewayConfig
}

/** Cleans up each part even if another one failed. Throws all errors at the end. */
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
