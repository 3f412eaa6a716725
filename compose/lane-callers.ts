/**
 * Who calls the status page of a part by a lane. Lanes lead to pods, and our own pods are among them.
 * docs/decisions/0040-status-pages.md
 */
import type { ClusterApi } from '../kubeapi/cluster-api.ts'
import { InvalidAddressError, type Prefix } from '../model/addresses/ip.ts'
import { isSourceAmong, laneSources } from '../model/lanes/lane-callers.ts'
import type { CallerCheck } from '../runtime/status-board.ts'

/**
 * Gives whom a status page turns away: who comes by a lane of the cluster with this id, as its objects have it at that
 * moment. Nobody before they have been read once: the API server, by which `diagnose` asks, has addresses that no object
 * names.
 */
export function laneCallers(api: Pick<ClusterApi, 'cache'>, cluster: string): CallerCheck {
  const [clusters, nodes] = [api.cache('Cluster'), api.cache('Node')]
  let sources: readonly Prefix[] = []
  let isStale = true
  for (const one of [clusters, nodes]) one.onChange(() => (isStale = true))
  const read = (): readonly Prefix[] => {
    try {
      return laneSources({ own: clusters.get(cluster), clusters: clusters.list(), nodes: nodes.list() })
    } catch (error) {
      // What was known holds on: gateways keep their plan with such an object too.
      if (error instanceof InvalidAddressError) return sources
      throw error
    }
  }
  return (source) => {
    if (isStale && clusters.synced && nodes.synced) {
      isStale = false
      sources = read()
    }
    return isSourceAmong(sources, source)
  }
}
