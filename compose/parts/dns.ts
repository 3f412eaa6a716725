/** Starts the DNS server of a site. */
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import { dnsConfig } from '../../dns/config.ts'
import { runDns } from '../../dns/main.ts'
import { MEMBERSHIP_NAME } from '../../model/objects.ts'
import type { ComponentDeps } from '../../runtime/component.ts'
import type { SiteRun } from '../run.ts'

/** A pod gets its SIGTERM before all nodes have stopped sending to it: their kube-proxies get the change later. */
const POD_LINGER_MS = 5000

export async function run(
  deps: ComponentDeps,
  { api, config, kube, membership }: SiteRun,
  signal: AbortSignal,
): Promise<void> {
  const linger = kube === undefined ? {} : { lingerMs: POD_LINGER_MS }
  const dns = dnsConfig({ clusterId: (await membership(signal)).cluster, ...linger, ...config.dns })
  return runDns({ ...deps, api }, dns, untilLeft(api, signal))
}

/** DNS has nothing to take down; it ends when the membership does. */
function untilLeft(api: ClusterApi, signal: AbortSignal): AbortSignal {
  const left = new AbortController()
  const memberships = api.cache('Membership')
  const look = (): void => {
    if (memberships.synced && memberships.get(MEMBERSHIP_NAME) === undefined) left.abort(new Error('the site has left'))
  }
  memberships.onChange(look)
  look()
  return AbortSignal.any([signal, left.signal])
}
