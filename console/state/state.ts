/** The public interface of this room: what the console shows, as a function of facts. */
export {
  type About,
  type AboutBroker,
  type CallsRow,
  type ClusterCard,
  type ConsoleState,
  type ContextRow,
  type DeniedRow,
  type EventRow,
  type FlowSample,
  type GatewayRow,
  type LinkRow,
  type OfContext,
  type ProblemRow,
  type RefusalRow,
  SECTIONS,
  type Section,
  type SectionName,
  type ServiceRow,
  type ShareCell,
  type Times,
  type Traffic,
} from './document.ts'
export type { CallsFact, FlowFact, FlowsFacts } from './plan-flows.ts'
export type { Answer } from './plan-rows.ts'
export { type ContextState, MOST_CONTEXTS, planSeveral } from './plan-several.ts'
export type { BrokerFacts, MemberFact, PublishedFacts } from './plan-broker.ts'
export { type LookFacts, planLook } from './plan-look.ts'
export {
  type AskedPath,
  type ExplainedPath,
  type PathAnswer,
  type StepRow,
  type WayRow,
  type WrongAnswer,
  failedPath,
  planPath,
  wrongPath,
} from './plan-path.ts'
export { type ConsoleFacts, type DeniedFact, type SharesFacts, type PlannedState, withFailure } from './plan-state.ts'
