/** Plans and makes changes to a cluster's own DNS so that it forwards clusterset.local to Sealane. */
export { applyClusterDns, readClusterDns } from './apply-cluster-dns.ts'
export {
  type ClusterDnsClient,
  type ClusterDnsFlavour,
  type ClusterDnsPlan,
  type ClusterDnsProblem,
  type DnsObject,
  type FoundDns,
  reasonOf,
} from './dns-change.ts'
export { wiredMaps } from './plan-caches.ts'
export { planClusterDns, planClusterDnsRemoval } from './plan-cluster-dns.ts'
