/** What the gateway's loops have in common: how they report that a round failed. */
import type { Clock } from '../reconcile/clock.ts'
import { type LoopRun, reportedLoop } from '../reconcile/loop-deps.ts'
import type { LoopDeps } from '../reconcile/loop.ts'
import { type Failure, reasonOf } from '../runtime/error-reason.ts'
import type { Logger } from '../runtime/logging/logger.ts'
import { messageOf } from '../runtime/thrown.ts'

export interface LoopParts {
  readonly clock: Clock
  readonly logger: Logger
  /** Called after each run. */
  readonly count?: (run: LoopRun) => void
}

export interface GatewayLoopDeps extends LoopDeps {
  /** Why the last round failed; undefined when it went well. */
  readonly failure: Failure | undefined
}

/** `loop` names it in log lines. A failure is logged once, until it is another: these loops try again every second. */
export function loopDeps({ clock, logger, count = () => undefined }: LoopParts, loop: string): GatewayLoopDeps {
  const reported = reportedLoop({ clock, logger, loop, count })
  let failure: Failure | undefined
  return {
    clock,
    onError: (error) => {
      const known = failure?.message
      failure = { message: messageOf(error), reason: reasonOf(error) ?? 'RoundFailed' }
      if (failure.message !== known) reported.onError(error)
    },
    onRun: (run) => {
      if (run.ok) failure = undefined
      reported.onRun?.(run)
    },
    get failure() {
      return failure
    },
  }
}
