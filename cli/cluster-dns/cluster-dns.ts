/** Plans and makes changes to a cluster's own DNS so that it forwards clusterset.local to Sealane. */
export { applyClusterDns, readClusterDns } from './apply-cluster-dns.ts'
export type { ClusterDnsClient, ClusterDnsFlavour, ClusterDnsPlan, DnsObject } from './dns-change.ts'
export { planClusterDns, planClusterDnsRemoval } from './plan-cluster-dns.ts'
