/** Takes everything of Sealane out of this node's kernel, for a site that is no member any more. */
import { join } from 'node:path'
import { WireguardCable } from '../../gateway/cable/wireguard/wireguard-cable.ts'
import { gatewayConfig } from '../../gateway/main.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/status-board.ts'
import { withKernel } from '../kernel.ts'
import { sealaneVersion } from '../../runtime/version.ts'
import type { Site } from '../run.ts'
import { cleanParts } from './clean-parts.ts'

export interface CleanNodeInit {
  readonly node: string
  readonly logger: Logger
  readonly signal: AbortSignal
}

/** Throws what the kernel refused, after everything else has been done. Doing it again is fine. */
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
