/** CustomResourceDefinitions of Sealane and of the Multi-Cluster Services API. */
export { ALL_CRDS, OWN_CRDS, compareRevisions, crdRevision, describeRevision } from './all-crds.ts'
export type { CustomResourceDefinition } from './custom-resource.ts'
export { SERVICE_EXPORT, SERVICE_IMPORT } from './multicluster-crds.ts'
export { TOPOLOGY } from './sealane-crds.ts'
export { type CrdDecision, planCrds } from './plan-crds.ts'
