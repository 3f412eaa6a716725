/** Roles, admission policies and network policies. */
export { agentNamespaceAccess, clusterAccess, gatewayNamespaceAccess, userAccess } from './member-access.ts'
export { memberPolicies } from './member-policies.ts'
export { networkPolicy } from './network-policies.ts'
