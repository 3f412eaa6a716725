/**
 * What the loops of all components have in common: a failed run is logged under the loop's name, every run is counted.
 */
import type { Logger } from '../runtime/logging/logger.ts'
import { messageOf } from '../runtime/thrown.ts'
import type { Clock } from './clock.ts'
import type { LoopDeps } from './loop.ts'

export interface LoopRun {
  /** The loop's name. */
  readonly loop: string
  readonly ok: boolean
  readonly ms: number
}

export interface ReportedLoop {
  readonly clock: Clock
  readonly logger: Pick<Logger, 'error'>
  /** Its name in log lines and metrics. */
  readonly loop: string
  /** Called after each run; counts it in the component's own metrics. */
  readonly count: (run: LoopRun) => void
}

/** LoopDeps of a loop that says so when a run fails. */
export function reportedLoop({ clock, logger, loop, count }: ReportedLoop): LoopDeps {
  return {
    clock,
    onError: (error) =>
      logger.error('round failed, will be tried again', { loop, reason: 'RoundFailed', why: messageOf(error) }),
    onRun: ({ ok, ms }) => count({ loop, ok, ms }),
  }
}
