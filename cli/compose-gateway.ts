/** Starts the gateway of one node, or prints what it would apply. */
import { join } from 'node:path'
import {
  type GatewayConfig,
  describeGatewayPlan,
  gatewayConfig,
  readGatewayWorld,
  runGateway,
  whenCachesSynced,
} from '../gateway/main.ts'
import type { Clock } from '../reconcile/clock.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import { withKernel } from './compose-kernel.ts'
import type { SiteRun } from './compose-run.ts'
import { sealaneVersion } from './context.ts'

export function run(deps: ComponentDeps, site: SiteRun, signal: AbortSignal): Promise<void> {
  return withKernel((kernel) => runGateway({ ...deps, ...kernel, cluster: site.cluster }, configOf(site), signal))
}

export async function plan(clock: Clock, site: SiteRun, signal: AbortSignal): Promise<string> {
  await whenCachesSynced(site.cluster, signal)
  return withKernel(async (kernel) => {
    const world = await readGatewayWorld({ ...kernel, clock, cluster: site.cluster }, configOf(site), signal)
    return world === undefined ? "# waiting for this cluster's own Cluster object\n" : describeGatewayPlan(world)
  })
}

function configOf({ config, node, identity }: SiteRun): GatewayConfig {
  return gatewayConfig({
    node,
    version: sealaneVersion(),
    stateDir: join(config.state, 'nodes', node),
    observedAddress: identity.observedAddress,
    lanes: config.gateways.filter((row) => row.node === node),
  })
}
