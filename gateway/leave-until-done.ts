/** leaveNode(), again and again with growing pauses. */
import { DEFAULT_LOOP } from '../reconcile/loop.ts'
import { untilDone } from '../reconcile/until-done.ts'
import { messageOf } from '../runtime/thrown.ts'
import type { GatewayDeps } from './deps.ts'
import { type LeaveInit, leaveNode } from './leave-node.ts'

/** True once everything is gone, false when the signal came first. */
export function leaveUntilDone(deps: GatewayDeps, init: LeaveInit, signal: AbortSignal): Promise<boolean> {
  const { clock, logger } = deps
  const backoff = { minMs: DEFAULT_LOOP.retryMinMs, maxMs: DEFAULT_LOOP.retryMaxMs }
  const onFailure = (error: unknown): void => {
    const reason = messageOf(error)
    logger.error('leaving: not clean yet', { error: reason })
  }
  return untilDone(() => leaveNode(deps, init, signal), { clock, backoff, onFailure }, signal)
}
