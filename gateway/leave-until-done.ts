/** leaveNode(), again and again with growing pauses. */
import { Backoff } from '../reconcile/backoff.ts'
import { DEFAULT_LOOP } from '../reconcile/loop.ts'
import type { GatewayDeps } from './gateway-deps.ts'
import { type LeaveInit, leaveNode } from './leave-node.ts'

/** True once everything is gone, false when the signal came first. */
export async function leaveUntilDone(deps: GatewayDeps, init: LeaveInit, signal: AbortSignal): Promise<boolean> {
  const backoff = new Backoff(deps.clock, { minMs: DEFAULT_LOOP.retryMinMs, maxMs: DEFAULT_LOOP.retryMaxMs })
  for (;;) {
    try {
      return await finished(leaveNode(deps, init, signal), signal)
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error)
      deps.logger.error('leaving: not clean yet', { error: reason })
    }
    if (!(await finished(deps.clock.sleep(backoff.next(), signal), signal))) return false
  }
}

/** True when the action ended by itself, false when the signal ended it. Throws what else it throws. */
export async function finished(action: Promise<unknown>, signal: AbortSignal): Promise<boolean> {
  try {
    await action
    return true
  } catch (error) {
    if (signal.aborted) return false
    throw error
  }
}
