/** Configuration of the routeagent of one node; everything else it reads from the cluster's objects. */
import { join } from 'node:path'
import type { OpenPort } from '../../model/addresses/addresses.ts'
import { type Clock, DEFAULT_LOOP, type LoopDeps, type LoopInit } from '../../reconcile/reconcile.ts'
import { reportedLoop } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { RouteAgentMetrics } from './metrics.ts'

export interface RouteAgentConfig {
  /** metadata.name of this machine's Node object. */
  readonly node: string
  /** Written into RouteAgent.status. */
  readonly version?: string
  /** Private directory of this node, where it is remembered that IP forwarding was switched on here. */
  readonly stateDir: string
  /** Ports of this node that pods of other clusters may call. Default: none. */
  readonly openPorts?: readonly OpenPort[]
  /** How often gateways of this cluster write their status at least. Default: HEARTBEAT_MS. */
  readonly heartbeatMs?: number
}

/** File that remembers that IP forwarding was switched on by the routeagent. */
export function forwardingMarker({ stateDir }: Pick<RouteAgentConfig, 'stateDir'>): string {
  return join(stateDir, 'routeagent-switched-on-forwarding')
}

export const DEFAULT_VERSION = 'dev'
/** Drift in the routes and in the nft table is looked for this often. */
export const RESYNC_MS = 30_000
/** What the node reports is written again after so long, so that it is there also where somebody took it away. */
export const REPORT_AGAIN_MS = 25_000
/** Connections to other clusters are counted this often. */
export const COUNT_CONNECTIONS_MS = 60_000
/** Shortest time between the starts of two runs of a loop. */
export const MIN_INTERVAL_MS = 10

/** How long the overlay device may hold a segment back to join it with the next: short beside any lane's round trip. */
export const OVERLAY_HOLD_MICROSECONDS = 100

// What the routeagent's loops have in common: their pace, and how their rounds are counted.

export const LOOP_PACE: LoopInit = { ...DEFAULT_LOOP, minMs: MIN_INTERVAL_MS, resyncMs: RESYNC_MS }

interface LoopParts {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: RouteAgentMetrics
}

/** `loop` names it in metrics and log lines. */
export function loopDeps({ clock, logger, metrics }: LoopParts, loop: string): LoopDeps {
  return reportedLoop({
    clock,
    logger,
    loop,
    count: ({ ok, ms }) => {
      metrics.runs.inc({ loop, result: ok ? 'ok' : 'failed' })
      metrics.runSeconds.observe(ms / 1000, { loop })
    },
  })
}
