/** What every component is handed. A component's main.ts exports run<Component>(deps, config, signal). */
import type { Clock } from '../reconcile/clock.ts'
import type { Logger } from './logging/logger.ts'
import type { Metrics } from './metrics/metrics.ts'
import type { StatusBoard } from './status-board.ts'

export interface ComponentDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: Metrics
  readonly status: StatusBoard
}
