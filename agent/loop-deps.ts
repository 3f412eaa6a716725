/** What the agent's loops have in common: how their rounds are counted. */
import type { Clock } from '../reconcile/clock.ts'
import { reportedLoop } from '../reconcile/loop-deps.ts'
import type { LoopDeps } from '../reconcile/loop.ts'
import type { Logger } from '../runtime/logging/logger.ts'
import type { AgentMetrics } from './metrics.ts'

export interface LoopParts {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

/** `loop` names it in metrics and log lines. */
export function loopDeps({ clock, logger, metrics }: LoopParts, loop: string): LoopDeps {
  return reportedLoop({
    clock,
    logger,
    loop,
    count: ({ ok, ms }) => {
      if (!ok) metrics.loopFailures.inc({ loop })
      metrics.loopSeconds.observe(ms / 1000, { loop })
    },
  })
}
