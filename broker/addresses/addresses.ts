/** Allocation of addresses, the ranges that members state, and the Cluster records that result. */
export {
  type Members,
  agreedMember,
  allClaims,
  awaitedIndexes,
  heldBlocks,
  ipv6NotCarried,
  membersOf,
  neededByAll,
  noteAwaited,
  orderClaims,
  statesIpv6,
} from './address-claims.ts'
export { type AddressFindings, clashText, describeAddresses, overlapsOf, serviceClashes } from './address-notes.ts'
export {
  MAX_INDEX,
  NoRoomError,
  addressOverlaps,
  globalCIDRs,
  nextIndex,
  planAddresses,
  withoutRoom,
} from './allocation.ts'
export {
  type Ranges,
  SeenRanges,
  areSameLabels,
  areSameRanges,
  changeOf,
  changedFields,
  isAskedAbout,
  labelsText,
  rangesHash,
  rangesOf,
  widened,
  withAccepted,
  withRanges,
} from './changed-ranges.ts'
export {
  asTheRowSays,
  clusterRecordKey,
  clusterSpec,
  drainFields,
  isDrainUndone,
  mendDrain,
  removeClusterRecord,
  withoutOldDrain,
  writeClusterRecords,
} from './cluster-records.ts'
export { candidateRanges, ipv4Ranges } from './stated-ranges.ts'
