/** The broker's database for commands that run beside it. Separate from the broker, which would load a server. */
import { type BrokerStore, openBrokerStore } from '../../broker/admin/admin.ts'
import { StateError } from '../../broker/store/store.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'

export type { BrokerStore, RekeyInit, TokenInit, TokenSummary } from '../../broker/admin/admin.ts'
export type { Answer, AnswerInit, WaitingSummary } from '../../broker/members/members.ts'
export type { EvictInit, Eviction, MemberSummary } from '../../broker/members/members.ts'

/**
 * Opens the broker's database, with or without a running broker. Throws if no broker has ever started with this state.
 */
export async function withBrokerStore<T>(state: string, work: (store: BrokerStore) => Promise<T> | T): Promise<T> {
  const store = await openBrokerStore(state, new SystemClock()).catch(withHint)
  try {
    return await work(store)
  } finally {
    await store.close()
  }
}

/** Throws `cause`. If there is no state, adds a hint about a broker on a cluster. */
export function withHint(cause: unknown): never {
  if (!(cause instanceof StateError) || cause.code !== 'Absent') throw cause
  throw new UserError(cause.message, { hint: 'for a broker on a cluster: --context NAME', cause })
}
