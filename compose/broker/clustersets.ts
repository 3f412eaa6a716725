/** The clustersets of a broker on this machine, for commands that run beside it. */
import { ClustersetStore } from '../../broker/admin/admin.ts'
import { SystemClock } from '../../reconcile/reconcile.ts'
import { withHint } from './store.ts'

export type { ClustersetStore, ClustersetSummary, CreateClustersetInit } from '../../broker/admin/admin.ts'

/** Works with or without a running broker. Throws if no broker has ever started with this state. */
export async function withClustersets<T>(state: string, work: (store: ClustersetStore) => Promise<T> | T): Promise<T> {
  const store = await ClustersetStore.open(state, new SystemClock()).catch(withHint)
  try {
    return await work(store)
  } finally {
    await store.close()
  }
}

/** The state directory of a clusterset. Throws RefusedError if there is none of this name. */
export function clustersetState(state: string, name: string): Promise<string> {
  return withClustersets(state, (store) => store.stateOf(name))
}
