/** Joins a Kubernetes cluster, drains its gateways, and makes it leave. */
export { drainGateway, undrainGateway } from './drain-gateway.ts'
export { type JoinKubeOptions, addJoinKubeOptions, refuseKubeOptions } from './join-options.ts'
export {
  PREFER_LOCAL,
  PREFER_LOCAL_REF,
  isFromJoin,
  isPreferLocal,
  planPreferLocal,
  stayingPolicyText,
} from './prefer-local.ts'
export { planRemoval } from './leave/plan-removal.ts'
export { objectDiff } from './preview-changes.ts'
export { runLeaveKube, runUninstall } from './leave/run-leave.ts'
export { type LookAtJoin, type RenumberingInit, agreeOnRenumbering } from './renumbering.ts'
export { rotateKeys } from './rotate-keys.ts'
export { runJoinKube } from './run-join.ts'
