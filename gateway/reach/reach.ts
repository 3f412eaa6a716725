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
export { NAT_TRAITS, type NatTrait, type NatView, natTraits } from './plan-nat.ts'
export { PublicName } from './public-name.ts'
export {
  BindCaller,
  type BindCallerInit,
  type BindingLimits,
  type CallerState,
  DEFAULT_LIMITS,
  type QuestionOutcome,
  RELAY_DROPS,
  type Refusal,
  type RelayConfig,
  type RelayDeps,
  type RelayDrop,
  type RelayEnd,
  RelayServer,
  type SharedPort,
  bindKey,
  type NatMapping,
  Relays,
  type RelayTrip,
  type WhyRelayed,
  endId,
  isRelayPlace,
  planRelayEnds,
  planSharedPorts,
  relayOf,
} from './relay/relay.ts'
