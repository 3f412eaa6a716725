/** What the agent's loops have in common: failures are logged and counted, every round is timed. */
import type { Clock } from '../reconcile/clock.ts'
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
  return {
    clock,
    onError: (error) => {
      metrics.loopFailures.inc({ loop })
      logger.error('round failed, will be tried again', {
        loop,
        reason: 'RoundFailed',
        why: error instanceof Error ? error.message : String(error),
      })
    },
    onRun: ({ ms }) => metrics.loopSeconds.observe(ms / 1000, { loop }),
  }
}
