/** Plans what this cluster publishes: records from its objects, conditions and reports. Pure. */
export { type ImportedBy, type Importers, importedCondition, planImportedBy, planImporters } from './importers.ts'
export { type LeftOutNote, addressProblem, usableTopology } from './member-records.ts'
export type { ExportAccess, ExportOffer } from './offers.ts'
export {
  type ExportPlan,
  type ExportWorld,
  type OwnExport,
  type PlannedExport,
  type PublishedSlice,
  newExportMemory,
  planExports,
} from './plan-exports.ts'
