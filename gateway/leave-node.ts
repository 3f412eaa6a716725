/** Takes everything of the gateway out of this node and out of the API, when the cluster leaves the clusterset. */
import { restoreForwarding } from '../kernel/ip-forwarding.ts'
import { NFT_TABLE_GATEWAY } from '../model/kernel-ids.ts'
import { sweepDevices } from './apply-devices.ts'
import { applyRoutes } from './apply-routes.ts'
import { type GatewayConfig, forwardingMarker } from './config.ts'
import type { GatewayDeps } from './gateway-deps.ts'
import { removeLaneKey } from './lane-key.ts'
import { ownEndpoints } from './lane-loop.ts'
import type { GatewayMetrics } from './metrics.ts'
import { Round } from './round.ts'

export interface LeaveInit {
  readonly config: GatewayConfig
  readonly metrics: GatewayMetrics
  readonly clusterId: string
}

/**
 * Routes and devices first, so that nothing is sent any more, the policy last. The objects go when the kernel is
 * clean: they are what `sealane leave` waits for. Throws what failed; calling it again goes on where it stopped.
 */
export async function leaveNode(deps: GatewayDeps, init: LeaveInit, signal: AbortSignal): Promise<void> {
  const { config } = init
  const round = new Round(deps.logger, init.metrics)
  await applyRoutes(deps.routes, undefined, round, signal)
  await sweepDevices(deps, [], round, signal)
  const tables = await round.attempt(() => deps.nft.tables(NFT_TABLE_GATEWAY, signal))
  if (tables?.value.includes(NFT_TABLE_GATEWAY) === true) {
    const statement = { verb: 'delete-table', table: NFT_TABLE_GATEWAY } as const
    await round.change('nft', `delete table ip ${NFT_TABLE_GATEWAY}`, () => deps.nft.run([statement], signal))
  }
  const restored = await round.attempt(() => restoreForwarding(deps.sysctl, forwardingMarker(config)))
  if (restored?.value === true) deps.logger.info('switched IP forwarding off again')
  for (const { lane } of config.lanes) await round.attempt(() => removeLaneKey(config.stateDir, lane))
  round.finish()
  for (const endpoint of ownEndpoints(deps, init.clusterId, config.node)) {
    await deps.cluster.remove('Endpoint', endpoint.metadata.name, undefined, signal)
  }
  await deps.cluster.remove('Gateway', config.node, undefined, signal)
}
