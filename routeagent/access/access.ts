/** The access rules of a node: which packets reach its pods from other clusters, and other clusters from its pods. */
export {
  type AccessGroups,
  type AccessPlan,
  type AccessTable,
  type Origin,
  NOTHING_OFFERED,
  accessChanges,
  accessElements,
  accessGuard,
  fixedElements,
  groupNames,
  groupStatements,
  ownPodsElements,
} from './access-chains.ts'
export { callsChanges, fixedByCalls } from './calls-chains.ts'
export { DeniedSamples } from './denied-samples.ts'
export type { CallsPlan } from './plan-calls.ts'
export { AccessReader, type AccessSite, type PlannedAccess } from './read-access.ts'
