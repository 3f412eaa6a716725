/** Joins a Kubernetes cluster, drains its gateways, and makes it leave. */
export { drainGateway, undrainGateway } from './drain-gateway.ts'
export { type JoinKubeOptions, addJoinKubeOptions, refuseKubeOptions } from './join-options.ts'
export { planRemoval } from './leave/plan-removal.ts'
export { runLeaveKube, runUninstall } from './leave/run-leave.ts'
export { type LookAtJoin, type RenumberingInit, agreeOnRenumbering } from './renumbering.ts'
export { rotateKeys } from './rotate-keys.ts'
export { runJoinKube } from './run-join.ts'
