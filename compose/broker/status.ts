/** Reads the status of a broker. Separate from the broker, which would load a server. */
import { type BrokerStatus, readBrokerStatus, readServing } from '../../broker/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { withHint } from './store.ts'

export { worstOf } from '../../broker/admin/admin.ts'
export type { BrokerStatus, Health, StatusProblem } from '../../broker/admin/admin.ts'

/** Throws UserError or StateError if no broker has ever used this state, or if it cannot be read. */
export async function brokerStatus(state: string, signal: AbortSignal): Promise<BrokerStatus> {
  return readBrokerStatus(state, new SystemClock(), signal).catch(withHint)
}

/**
 * Whether a broker serves this state now. Undefined if that cannot be determined. Throws the errors of brokerStatus().
 */
export async function isServed(state: string, signal: AbortSignal): Promise<boolean | undefined> {
  const replicas = await readServing(state, new SystemClock(), signal).catch(withHint)
  return replicas === undefined ? undefined : replicas.length > 0
}
