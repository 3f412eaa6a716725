/** For parts that have nothing to take down on a site: they end when the membership does. */
import type { ClusterApi } from '../kubeapi/cluster-api.ts'
import { MEMBERSHIP_NAME } from '../model/objects.ts'

/** Aborts once this site, which had joined, has no Membership any more; with the signal's reason when that came first. */
export function untilLeft(api: Pick<ClusterApi, 'cache'>, signal: AbortSignal): AbortSignal {
  const left = new AbortController()
  const memberships = api.cache('Membership')
  const look = (): void => {
    if (memberships.synced && memberships.get(MEMBERSHIP_NAME) === undefined) left.abort(new Error('the site has left'))
  }
  memberships.onChange(look)
  look()
  return AbortSignal.any([signal, left.signal])
}
