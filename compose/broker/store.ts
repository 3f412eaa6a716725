/** The broker's database for commands beside it; apart from the broker itself, which brings a server along. */
import { type BrokerStore, openBrokerStore } from '../../broker/admin/admin.ts'
import { StateError } from '../../broker/store/store.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'

export type { BrokerStore, RekeyInit, TokenInit, TokenSummary } from '../../broker/admin/admin.ts'
export type { Answer, AnswerInit, WaitingSummary } from '../../broker/members/members.ts'
export type { EvictInit, Eviction, MemberSummary } from '../../broker/members/members.ts'

/**
 * Opens the broker's database, beside a running broker or not. Throws when no broker has ever started on this state.
 */
export async function withBrokerStore<T>(state: string, work: (store: BrokerStore) => Promise<T> | T): Promise<T> {
  const store = await openBrokerStore(state, new SystemClock()).catch(withHint)
  try {
    return await work(store)
  } finally {
    await store.close()
  }
}

/** Throws it, and where there is no state, with where it may be instead. */
export function withHint(cause: unknown): never {
  if (!(cause instanceof StateError) || cause.code !== 'Absent') throw cause
  throw new UserError(cause.message, { hint: 'for a broker on a cluster: --context NAME', cause })
}
