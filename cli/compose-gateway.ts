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
import { type GatewayLane, LABEL_GATEWAY, gatewayLane } from '../model/gateway-node.ts'
import type { Clock } from '../reconcile/clock.ts'
import type { ComponentDeps } from '../runtime/component.ts'
import { UserError } from '../runtime/user-error.ts'
import { withKernel } from './compose-kernel.ts'
import type { SiteRun } from './compose-run.ts'
import { sealaneVersion } from './context.ts'

export async function run(deps: ComponentDeps, site: SiteRun, signal: AbortSignal): Promise<void> {
  const config = await configOf(site, signal)
  return withKernel((kernel) => runGateway({ ...deps, ...kernel, cluster: site.cluster }, config, signal))
}

export async function plan(clock: Clock, site: SiteRun, signal: AbortSignal): Promise<string> {
  const config = await configOf(site, signal)
  await whenCachesSynced(site.cluster, signal)
  return withKernel(async (kernel) => {
    const world = await readGatewayWorld({ ...kernel, clock, cluster: site.cluster }, config, signal)
    return world === undefined ? "# waiting for this cluster's own Cluster object\n" : describeGatewayPlan(world)
  })
}

async function configOf(site: SiteRun, signal: AbortSignal): Promise<GatewayConfig> {
  const { config, node } = site
  const { observedAddress } = await site.standing(signal)
  return gatewayConfig({
    node,
    version: sealaneVersion(),
    stateDir: join(config.state, 'nodes', node),
    ...(observedAddress === undefined ? {} : { observedAddress }),
    lanes: site.kube === undefined ? config.gateways.filter((row) => row.node === node) : await nodeLanes(site, signal),
  })
}

/** What the Node says about itself. It is read once: a changed lane takes a restart of the gateway. */
async function nodeLanes({ cluster, node }: SiteRun, signal: AbortSignal): Promise<readonly GatewayLane[]> {
  const nodes = cluster.cache('Node')
  await nodes.whenSynced(signal)
  const object = nodes.get(node)
  if (object === undefined) throw new UserError(`--node ${node}: this cluster has no such Node`)
  const lane = gatewayLane(object)
  if (lane === undefined) throw new UserError(`Node ${node} is no gateway: it has no label ${LABEL_GATEWAY}`)
  return [lane]
}
