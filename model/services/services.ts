/**
 * The public interface of this room: services that several clusters export (merge, precedence, conflicts), where their
 * calls go (cluster selection, traffic policies, shares), the endpoints that are one pod, and checks of a site's backends.
 */
export {
  ANNOTATION_CHECK,
  type BackendCheck,
  CHECK_INTERVAL_RANGE,
  CHECK_TIMEOUT_RANGE,
  type CheckMethod,
  type CheckTiming,
  DEFAULT_CHECK_TIMING,
  MAX_CHECK_COUNT,
  checkOf,
  checkPort,
  checkProblem,
  downBackends,
  formatBackendCheck,
  formatCheckMethod,
  parseBackendCheck,
  parseCheckMethod,
  timingProblem,
  withBackendHealth,
} from './backend-check.ts'
export {
  ANNOTATION_FROM_NODES,
  type StatedProperties,
  believedProperties,
  isFromNodes,
  ownProperties,
  statedProperties,
  topologyProperties,
} from './cluster-properties.ts'
export {
  type ClusterCandidate,
  type PreparedSelector,
  SAME_AS_IMPORTER,
  type SelectorResults,
  type SelectorsProblem,
  clusterSelectorsProblem,
  prepareSelector,
  selectorResults,
} from './cluster-selection.ts'
export {
  ANNOTATION_DERIVED_SERVICE,
  DERIVED_SUFFIX,
  type DerivedName,
  LABEL_DERIVED,
  LABEL_DERIVED_FROM,
  derivedName,
  isDerived,
  usersReason,
} from './derived-services.ts'
export {
  ANNOTATION_PODS,
  type ConflictFinding,
  type ExposedPort,
  type IpFamily,
  type MergedService,
  exposedPorts,
  isPodKey,
  mergeServices,
  podKey,
  podsOf,
  podsText,
} from './merge-services.ts'
export {
  type ClusterShare,
  type ExportingCluster,
  type SelectableCluster,
  type SharesInput,
  type SharesPlan,
  type TrafficRules,
  planShares,
  weightsOf,
} from './plan-shares.ts'
export {
  type AnyTrafficPolicy,
  type SeenPolicies,
  TrafficPolicies,
  type TrafficNotes,
  type TrafficWorld,
  TrafficVersions,
  policyInForce,
  seePolicy,
  trafficNotes,
  trafficPolicyProblem,
} from './traffic-policies.ts'
export {
  ANNOTATION_DRAIN,
  ANNOTATION_DRAINED,
  ANNOTATION_DRAINED_NOW,
  ANNOTATION_ENDS_OPEN,
  type Drain,
  type PortShares,
  type ServiceShares,
  type SharesChange,
  type SharesWorld,
  changesShares,
  drainOf,
  importPortText,
  endedClusters,
  endsOpenOf,
  sharesOfPort,
  sharesOfService,
  statedShares,
} from './service-shares.ts'
export { isPortNumber, portId, targetPorts } from './slice-ports.ts'
