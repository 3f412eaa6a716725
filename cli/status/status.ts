/** Gathers the facts of a member for `status` and `diagnose`, runs probes, and prints the results. */
export { gatherFacts, textOfPage } from './ask.ts'
export {
  type Several,
  type SeveralInit,
  comparisonDocument,
  comparisonText,
  diagnosisDocument,
  diagnosisText,
  lookAtSeveral,
} from './diagnosis.ts'
export {
  type ConnectionRow,
  type GatewayRow,
  agoText,
  connectionRows,
  gatewayRows,
  noGatewayNote,
} from './gateway-rows.ts'
export { kubeFacts } from './kube-facts.ts'
export { type RelayRow, relayRows } from './relay-rows.ts'
export { type MemberInit, openMember } from './open-member.ts'
export { probeHost } from './probes/host-probe.ts'
export { lookFromPod } from './probes/look-from-pod.ts'
export {
  type AskedServer,
  MACHINE_COMMAND,
  MOST_SERVERS,
  type MachineFacts,
  parseAskedServer,
} from './probes/machine-command.ts'
export { type DeniedRow, readDenied } from './access/read-denied.ts'
export { type NodeFlows, readFlows } from './flows/read-flows.ts'
export {
  FLOW_GROUPS,
  FLOW_ORDERS,
  type FlowFilter,
  type FlowGroup,
  type FlowOrder,
  type TopRow,
  flowLines,
  linesToKnow,
  newLines,
  topRows,
} from './flows/plan-flows.ts'
export { nodePages } from './probes/node-pages.ts'
export { SILENT_PROGRESS, progressOn } from './probes/progress.ts'
export { siteProbes } from './probes/site-probes.ts'
export { type PartVersion, readVersions } from './read-versions.ts'
export { siteFacts } from './site-facts.ts'
export {
  type AccessObjects,
  type CheckObjects,
  accessRows,
  causeText,
  importersText,
  checkAccess,
  offeredText,
} from './access/plan-access.ts'
export { type Called, type Caller, parseCalled, parseCaller } from './access/parse-ends.ts'
export {
  type TrafficObjects,
  type TrafficRow,
  invalidPolicies,
  policyText,
  serviceText,
  shareText,
  trafficRows,
} from './traffic/plan-traffic.ts'
export { betterText, candidateText } from './reach-text.ts'
export { EXIT_CODES, EXIT_UNKNOWN, EXPOSED, statusDocument, statusScreen } from './status-screen.ts'
export type { ProbeAdmin } from './verify/kube-member.ts'
export { PROBE_COMMAND } from './verify/probe-wire.ts'
export type { Drain, GatewayAdmin, ProbeCaller } from './verify/run-verify.ts'
export type { SessionInit, SessionNames, UserService } from './verify/verify-session.ts'
