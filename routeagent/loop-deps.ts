/** What the routeagent's loops have in common: their pace, and how their rounds are counted. */
import type { Clock } from '../reconcile/clock.ts'
import { reportedLoop } from '../reconcile/loop-deps.ts'
import { DEFAULT_LOOP, type LoopDeps, type LoopInit } from '../reconcile/loop.ts'
import type { Logger } from '../runtime/logging/logger.ts'
import { MIN_INTERVAL_MS, RESYNC_MS } from './config.ts'
import type { RouteAgentMetrics } from './metrics.ts'

export const LOOP_PACE: LoopInit = { ...DEFAULT_LOOP, minMs: MIN_INTERVAL_MS, resyncMs: RESYNC_MS }

export interface LoopParts {
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
