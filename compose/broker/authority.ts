/** The certificate authority of a broker on this machine, for commands that run beside it. */
import { type AuthorityStore, openAuthorityStore } from '../../broker/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { withHint } from './store.ts'

export type { AuthorityFacts, AuthorityStatus } from '../../broker/identity/identity.ts'
export type { AuthorityStep, AuthorityStore, RotateInit } from '../../broker/admin/admin.ts'

/** Works with or without a running broker. Throws if no broker has ever started with this state. */
export async function withAuthorityStore<T>(state: string, work: (store: AuthorityStore) => Promise<T>): Promise<T> {
  const store = await openAuthorityStore(state, new SystemClock()).catch(withHint)
  try {
    return await work(store)
  } finally {
    await store.close()
  }
}
