/** The public interface of this room: what all drivers of the API have in common. */
export {
  type CreationMetadata,
  KindStore,
  LiveCache,
  type StoredStatus,
  deepFreeze,
  plain,
  sameOwnedParts,
  specParts,
  withCondition,
  withServerMetadata,
} from './kind-store.ts'
export {
  EventFilter,
  NO_NAMESPACE,
  type ObjectKey,
  ResidentNamespaces,
  checkAddress,
  keyOf,
  objectKey,
  objectTitle,
} from './object-key.ts'
