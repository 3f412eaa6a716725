/**
 * The public interface of this room: who may call what. The broker, the importer, the nodes of the exporter, the nodes
 * of the caller and the command line decide by the same functions. Pure.
 */
export {
  ANNOTATION_UNREAD_FILE,
  type AccessDefault,
  type AccessWorld,
  AccessRules,
  type DecidedOffer,
  type OfferCause,
  type PolicyNotes,
  policyTargets,
} from './access-rules.ts'
export {
  AccessVersions,
  type AnyAccessPolicy,
  accessInForce,
  accessProblem,
  unknownPolicyParts,
} from './access-versions.ts'
export {
  ANNOTATION_CALLERS,
  type CallerNamespace,
  NO_NAMESPACE,
  callersIn,
  callersOf,
  callersText,
  choosesNamespace,
  cutCallers,
  keepsOpenCalls,
  togetherChosen,
} from './callers.ts'
export { EgressRules, clustersWithoutEgress, egressRules, keepsOpenConnections } from './egress.ts'
export { EXPOSURES, type Exposure, exposureOf } from './exposure.ts'
export { isUnderstoodSelector, matchesLabels } from './match-labels.ts'
export {
  type KeptVersion,
  type SeenVersions,
  seeVersion,
  unreadableField,
  versionInForce,
  versionToKeep,
} from './policy-versions.ts'
export {
  type Caller,
  MAX_OFFERED_IDS,
  MAX_OFFER_RULES,
  TO_ALL,
  TO_NOBODY,
  isOfferedTo,
  mayCall,
  offerProblem,
  offeredClusters,
  sameOffer,
} from './offer.ts'
