/** What `sealane join` and `sealane broker deploy` share: values, marks, images, rights and waiting for a rollout. */
export {
  type ApplyContext,
  type Change,
  type NodeChange,
  applyCrd,
  applyCrds,
  applyNodes,
  applyObjects,
  crdsMissing,
  describeChange,
  leaveToken,
  nodeMarkText,
  requireAdmission,
  wantedCrds,
} from './apply-objects.ts'
export {
  type Right,
  applyRights,
  brokerRights,
  checkRights,
  departureRights,
  hasSecurityContextConstraints,
  memberRights,
  preferLocalRights,
  removalRights,
  rightTo,
  rightsBesides,
  topologyRights,
} from './check-rights.ts'
export { type ImageCheckInit, imageExample, imageProblems, imageQuestion, requireImage } from './image-check.ts'
export {
  NO_MARKS,
  type SecretMarkChange,
  afterMarks,
  applySecretMarks,
  decideCrds,
  markedCrds,
  planSecretMarks,
} from './marks.ts'
export { conditionsOf, listOf } from './object-status.ts'
export {
  type InstalledObjects,
  type InstalledValues,
  hasOpenMetrics,
  installedRefs,
  objectsToRemove,
  planInstalledMember,
  readInstalledValues,
  readMarks,
  upgradedImage,
} from './plan-installed-values.ts'
export { firstTrouble, lastSaid, partTrouble, selectorText } from './pod-trouble.ts'
export { parseQuantity } from './quantity.ts'
export {
  type Progress,
  type WorkloadShape,
  isReady,
  isRolledOut,
  nodeText,
  rolloutOf,
  rolloutProgress,
  unreadyNodes,
} from './rollout.ts'
export { RolloutRoom, restoreRecorded } from './rollout-room.ts'
export {
  type AskedOptions,
  type ImageOptions,
  type MarkOptions,
  type StatusOptions,
  addImageOptions,
  addMarkOptions,
  addStatusOptions,
  asksResources,
  imageValues,
  markFlags,
  parseImage,
  withImage,
  withMarks,
  withStatus,
} from './values-options.ts'
export { type Missing, type Probe, TookTooLong, type WaitInit, waitUntil } from './wait-until.ts'
