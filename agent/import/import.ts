/** Checks and sorts what other members publish, and plans the objects that follow from it. Pure. */
export { recordProblem, takesNeeded } from './check-record.ts'
export { type ClustersetView, type Dropped, type IsLinked, changeServices } from './clusterset-records.ts'
export {
  type ImportMemory,
  type ImportPlan,
  type ImportWorld,
  type MirroredObjects,
  newImportMemory,
  objectsOf,
  ownedByMirror,
  planImports,
  planPrune,
  replanServices,
} from './plan-imports.ts'
export {
  type DerivedFinding,
  type DerivedMemory,
  type DerivedPlan,
  type DerivedWorld,
  derivedAmong,
  planDerived,
} from './plan-derived.ts'
export type { ServicePlan } from './plan-service.ts'
