/**
 * How a process leaves its ports so that nobody notices: what is new goes to another process on the same port, where
 * there is one; what has come is answered; then the sockets are closed.
 */
import type { Clock } from '../../reconcile/clock.ts'
import type { DnsConfig } from '../config.ts'
import type { Pipeline } from '../pipeline.ts'
import type { Listener } from './listener.ts'

export interface LeavingInit {
  readonly clock: Clock
  readonly listeners: readonly Listener[]
  readonly pipeline: Pick<Pipeline, 'underWay'>
}

const QUIET_LOOK_MS = 10

/**
 * Goes on serving for `lingerMs`, and then for as long as questions to the upstreams are under way, the time of one
 * upstream at most. The listeners are left open. A linger of 0 waits for nothing.
 */
export async function giveWay(
  { clock, listeners, pipeline }: LeavingInit,
  { lingerMs, upstreamTimeoutMs }: Pick<DnsConfig, 'lingerMs' | 'upstreamTimeoutMs'>,
): Promise<void> {
  if (lingerMs === 0 || listeners.length === 0) return
  for (const listener of listeners) listener.passOn()
  const never = new AbortController().signal
  await clock.sleep(lingerMs, never)
  const end = clock.monotonic() + upstreamTimeoutMs
  while (pipeline.underWay > 0 && clock.monotonic() < end) await clock.sleep(QUIET_LOOK_MS, never)
}
