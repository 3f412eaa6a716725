/** The clustersets of a broker on this machine, for commands beside it. */
import { ClustersetStore } from '../../broker/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { withHint } from './store.ts'

export type { ClustersetStore, ClustersetSummary, CreateClustersetInit } from '../../broker/admin/admin.ts'

/** Beside a running broker or not. Throws when no broker has ever started on this state. */
export async function withClustersets<T>(state: string, work: (store: ClustersetStore) => Promise<T> | T): Promise<T> {
  const store = await ClustersetStore.open(state, new SystemClock()).catch(withHint)
  try {
    return await work(store)
  } finally {
    await store.close()
  }
}

/** The state directory of one of them. Throws RefusedError where there is none of this name. */
export function clustersetState(state: string, name: string): Promise<string> {
  return withClustersets(state, (store) => store.stateOf(name))
}
