/** Starts the DNS server of a site. */
import { dnsConfig } from '../../dns/config/config.ts'
import { runDns } from '../../dns/main.ts'
import type { ComponentDeps } from '../../runtime/runtime.ts'
import { type SiteRun, untilLeft } from './part.ts'

/** A pod gets SIGTERM before all nodes have stopped sending to it, since kube-proxy gets the change later. */
const POD_LINGER_MS = 5000

export async function run(
  deps: ComponentDeps,
  { api, config, kube, membership, heartbeatMs }: SiteRun,
  signal: AbortSignal,
): Promise<void> {
  const linger = kube === undefined ? {} : { lingerMs: POD_LINGER_MS }
  // The site file has the addresses of all gateway nodes.
  const spread = kube === undefined && config.gateways.length > 1
  const dns = dnsConfig({
    clusterId: (await membership(signal)).cluster,
    ...linger,
    ...config.dns,
    forwardFor: [...config.podCIDRs, ...config.serviceCIDRs, ...config.dns.forwardFor],
    spread,
    heartbeatMs,
  })
  return runDns({ ...deps, api }, dns, untilLeft(api, signal))
}
