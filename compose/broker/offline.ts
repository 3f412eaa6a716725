/** The commands of operators on a state that no broker of this machine serves. */
import { OfflineStates, administration, operatorActor, readServing } from '../../broker/admin/admin.ts'
import { StateError, readStoreConfig } from '../../broker/store/store.ts'
import { type BrokerAdmin, localOperator } from '../../protocol/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'

export interface OfflineInit {
  /** The state directory of the broker. */
  readonly state: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset: string | undefined
  readonly signal: AbortSignal
}

/** Throws StateError if no broker has ever started with this state, or if one runs and the command changes it. */
export async function withOfflineBroker<T>(
  { state, clusterset, signal }: OfflineInit,
  work: (admin: BrokerAdmin) => Promise<T>,
): Promise<T> {
  const clock = new SystemClock()
  const states = new OfflineStates(state, clock)
  const deps = { states, stateDir: state, store: await readStoreConfig(state), clock, signal }
  return work(administration(deps, { clusterset, who: operatorActor(localOperator()) })).catch(withHint)
}

/** The state directory of a clusterset. Throws RefusedError if there is none of this name. */
export function clustersetState(state: string, clusterset: string | undefined): Promise<string> {
  return new OfflineStates(state, new SystemClock()).directoryOf(clusterset)
}

/** Throws `cause`. If there is no state, adds a hint about a broker on a cluster. */
function withHint(cause: unknown): never {
  if (!(cause instanceof StateError) || cause.code !== 'Absent') throw cause
  throw new UserError(cause.message, { hint: 'for a broker on a cluster: --context NAME', cause })
}

/** Whether replicas serve this state now, on any machine. Undefined if that cannot be determined. Throws StateError. */
export async function isServed(state: string, signal: AbortSignal): Promise<boolean | undefined> {
  const replicas = await readServing(state, new SystemClock(), signal).catch(withHint)
  return replicas === undefined ? undefined : replicas.length > 0
}
