/** Relays: what they forward, for whom, and how the ends of links get themselves bound. */
export { BindCaller, type BindCallerInit, type CallerState } from './bind-caller.ts'
export { type Refusal, bindKey, endId } from './bind-frame.ts'
export { type BindingLimits, DEFAULT_LIMITS, type QuestionOutcome, type RelayEnd } from './bindings.ts'
export { RELAY_DROPS, type RelayDrop } from './plan-relay-table.ts'
export { planRelayEnds } from './plan-relay-ends.ts'
export { type SharedPort, planSharedPorts } from './plan-shared-port.ts'
export { type RelayConfig, type RelayDeps, RelayServer } from './relay-server.ts'
