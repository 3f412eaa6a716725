/** Notices that the cluster leaves the clusterset. */
import type { ClusterApi } from '../kubeapi/cluster-api.ts'
import { readMembership } from './read-world.ts'

/**
 * Calls back once, with the cluster id, when the Membership says that the cluster leaves, or vanishes after it has
 * been seen. A Membership that was never there is not a departure: the site may not have joined yet.
 */
export function watchMembership(
  cluster: ClusterApi,
  onLeave: (clusterId: string) => void,
): { readonly close: () => void } {
  let clusterId: string | undefined
  let told = false
  const look = (): void => {
    const membership = readMembership(cluster)
    if (membership !== undefined) clusterId = membership.spec.clusterId
    if (told || clusterId === undefined || membership?.spec.phase === 'joined') return
    told = true
    onLeave(clusterId)
  }
  const end = cluster.cache('Membership').onChange(look)
  look()
  return { close: end }
}
