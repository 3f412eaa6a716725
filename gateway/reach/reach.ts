/** Finds where this node can be called and where far ends are called. */
export { isWebPlace } from './web/plan-web-use.ts'
export type { WebRelayView } from './web/web-relay.ts'
export { CallHistory } from './call-history.ts'
export { type EndpointChoice, chooseEndpoint, chooseTransit } from './choose-endpoint.ts'
export {
  isBehindNat,
  isOwnLaneHidden,
  isPortMapped,
  linkPort,
  observedValidator,
  ownAddresses,
  planCandidates,
} from './plan-candidates.ts'
export { PortMappings, type PortMappingView, portMappingText, endPortMappings } from './mapping/mapping.ts'
export { NAT_TRAITS, type NatTrait, type NatView, natTraits } from './nat/plan-nat.ts'
export { PublicName } from './public-name.ts'
export { BindCaller, type BindCallerInit, type CallerState } from './relay/bind-caller.ts'
export { type NatMapping, type Refusal, bindKey, endId } from './frames/bind-frame.ts'
export { isRelayPlace, relayOf } from './relay/plan-relay-use.ts'
export { type SharedPort, planSharedPorts } from './relay/plan-shared-port.ts'
export type { RelayTrip, WhyRelayed } from './relay/relay-calls.ts'
export { Relays } from './relay/relays.ts'
export { type BindingLimits, DEFAULT_LIMITS } from './relay-server/bindings.ts'
export { planRelayEnds } from './relay-server/plan-relay-ends.ts'
export { RELAY_DROPS, type RelayDrop } from './relay-server/plan-relay-table.ts'
export type { QuestionOutcome, RelayEnd } from './relay-server/relay-events.ts'
export { type RelayConfig, type RelayDeps, RelayServer } from './relay-server/relay-server.ts'
