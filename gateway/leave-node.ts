/**
 * Takes everything of the gateway out of this node and out of the API: when the cluster leaves the clusterset, and when
 * the node is a gateway no more.
 */
import { FAMILIES } from '../model/addresses/addresses.ts'
import { NO_ROUTING, Round, applyRouting } from '../kernel/apply/apply.ts'
import { restoreForwarding } from '../kernel/tuning/tuning.ts'
import { DEFAULT_LOOP, untilDone } from '../reconcile/reconcile.ts'
import { messageOf } from '../runtime/runtime.ts'
import { removeTable } from './nft/nft.ts'
import { laneScope, ownEndpoints } from './lanes/lanes.ts'
import { type GatewayConfig, type GatewayDeps, type GatewayMetrics, forwarding } from './world/world.ts'

export interface LeaveInit {
  readonly config: GatewayConfig
  readonly metrics: GatewayMetrics
  readonly clusterId: string
}

/**
 * Devices first, so that nothing is sent any more: their routes go with them, and nothing that this node says of a lane
 * finds another way out. The policy last. The objects go when the kernel is clean: they are what `sealane leave` waits
 * for. Throws what failed; calling it again goes on where it stopped.
 */
export async function leaveNode(deps: GatewayDeps, init: LeaveInit, signal: AbortSignal): Promise<void> {
  const { config } = init
  const round = new Round({ logger: deps.logger, changes: init.metrics.changes })
  const swept = await deps.cable.remove([], round, signal)
  await applyRouting(deps.routes, NO_ROUTING, laneScope(deps), round, signal)
  // A lane is never without its policy, not even one that cannot be taken away.
  if (swept) for (const nft of [deps.nft, deps.nft6]) await removeTable(nft, round, signal)
  for (const family of FAMILIES) {
    const { name, setting, marker } = forwarding(config, family)
    const restored = await round.attempt(() => restoreForwarding(deps.sysctl, marker, setting))
    if (restored?.value === true) deps.logger.info(`switched ${name} forwarding off again`)
  }
  await round.attempt(() => deps.cable.prepare([]))
  round.finish()
  for (const endpoint of ownEndpoints(deps, init.clusterId, config.node)) {
    await deps.api.remove('Endpoint', endpoint.metadata.name, undefined, signal)
  }
  await deps.api.remove('Gateway', config.node, undefined, signal)
}

/** leaveNode(), again and again with growing pauses. True once everything is gone, false when the signal came first. */
export function leaveUntilDone(deps: GatewayDeps, init: LeaveInit, signal: AbortSignal): Promise<boolean> {
  const { clock, logger } = deps
  const backoff = { minMs: DEFAULT_LOOP.retryMinMs, maxMs: DEFAULT_LOOP.retryMaxMs }
  const onFailure = (error: unknown): void => {
    logger.error('leaving: not clean yet', { reason: 'RoundFailed', why: messageOf(error) })
  }
  return untilDone(() => leaveNode(deps, init, signal), { clock, backoff, onFailure }, signal)
}
