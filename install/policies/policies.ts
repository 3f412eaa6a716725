/** Roles, admission policies and network policies. */
export {
  CLUSTER_DNS_ROLE,
  CREATES_IDENTITY,
  REPLACES_GATEWAYS,
  agentNamespaceAccess,
  clusterAccess,
  clusterDnsAccess,
  consoleNamespaceAccess,
  consoleReaders,
  gatewayNamespaceAccess,
  userAccess,
} from './member-access.ts'
export { memberPolicies } from './member-policies.ts'
export { networkPolicy } from './network-policies.ts'
export { constraintsAccess, nodeConstraints } from './openshift.ts'
