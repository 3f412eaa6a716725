/** Plans and edits of a cluster's own DNS, so that it forwards clusterset.local. */
export { applyClusterDns, readClusterDns } from './apply-cluster-dns.ts'
export type { ClusterDnsClient, ClusterDnsFlavour, ClusterDnsPlan, DnsObject } from './dns-change.ts'
export { planClusterDns, planClusterDnsRemoval } from './plan-cluster-dns.ts'
