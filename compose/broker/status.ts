/** How a broker is, apart from the broker itself, which brings a server along. */
import { type BrokerStatus, readBrokerStatus, readServing } from '../../broker/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { withHint } from './store.ts'

export { worstOf } from '../../broker/admin/admin.ts'
export type { BrokerStatus, Health, StatusProblem } from '../../broker/admin/admin.ts'

/** Throws UserError or StateError where no broker has ever been on this state, or it cannot be read. */
export async function brokerStatus(state: string, signal: AbortSignal): Promise<BrokerStatus> {
  return readBrokerStatus(state, new SystemClock(), signal).catch(withHint)
}

/** Whether a broker serves this state now; undefined where nobody can know. Throws as brokerStatus() does. */
export async function isServed(state: string, signal: AbortSignal): Promise<boolean | undefined> {
  const replicas = await readServing(state, new SystemClock(), signal).catch(withHint)
  return replicas === undefined ? undefined : replicas.length > 0
}
