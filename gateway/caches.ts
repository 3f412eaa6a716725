/** The object caches that the gateway lives on, taken together. */
import type { ClusterApi } from '../kubeapi/cluster-api.ts'
import { toldOtherRanges } from '../model/addresses/pod-ranges.ts'
import { GATEWAY_KINDS, whenCachesSynced } from './read-world.ts'

export interface WatchedCaches {
  /** Undefined when all have been read once, else which have not. */
  readonly notSynced: () => string | undefined
  readonly whenSynced: (signal: AbortSignal) => Promise<void>
  /** Calls back after each change of an object that the plan depends on. Gives the function that ends it. */
  readonly onChange: (listener: () => void) => () => void
  /** Calls back after a node told other ranges of pods than before. Gives the function that ends it. */
  readonly onRanges: (listener: () => void) => () => void
}

export function watchedCaches(cluster: ClusterApi): WatchedCaches {
  return {
    notSynced: () => {
      const missing = [...GATEWAY_KINDS, 'RouteAgent' as const].filter((kind) => !cluster.cache(kind).synced)
      return missing.length === 0 ? undefined : `not read yet: ${missing.join(', ')}`
    },
    whenSynced: (signal) => whenCachesSynced(cluster, signal),
    onChange: (listener) => {
      const ends = GATEWAY_KINDS.map((kind) => cluster.cache(kind).onChange(() => listener()))
      return () => ends.forEach((end) => end())
    },
    onRanges: (listener) =>
      cluster.cache('RouteAgent').onChange((change) => {
        if (toldOtherRanges(change)) listener()
      }),
  }
}
