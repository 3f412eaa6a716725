/** The public interface of this room: a Kubernetes-shaped object API with list, watch, apply, status and leases. */
export {
  type ClusterApi,
  ClusterApiError,
  type ClusterApiErrorCode,
  type LeaseStore,
  type ObjectCache,
  type ObjectChange,
  type ObjectEvent,
  type ObjectName,
  type StoredLease,
} from './cluster-api.ts'
export { HeardGateways } from './heard-gateways.ts'
export { MembershipChanges, watchLeaving, whenMembership } from './membership.ts'
export { formatYaml, parseDocuments, parseYaml } from './yaml.ts'
