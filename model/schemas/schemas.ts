/** The public interface of this room: the shapes of objects, and the fields that are kept. */
export { type FieldPath, complaintOf, pathText } from './complaints.ts'
export { SPEC_SHAPES, STATUS_SHAPES } from './own-objects.ts'
export { type RawObject, type Slimmer, slimObject, withoutLinkCandidates } from './slim-objects.ts'
export { endpointVia } from './endpoint-via.ts'
export { type KnownClusters, type Transit, transitOf } from './own-topology.ts'
export { type ReadTopology, readTopology } from './topology.ts'
export { type MisspeltType, type TypeMeta, misspeltType, userKind } from './user-objects.ts'
