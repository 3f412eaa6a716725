/** Applies routes, rules and next hops in rounds: each reads the present state and applies the difference. */
export { type Guard, applyGuard } from './apply-guard.ts'
export { NO_ROUTING, type RoutingScope, applyRouting } from './apply-routing.ts'
export { type GroupedRoutes, groupRoutes } from './plan-next-hops.ts'
export { Round } from './round.ts'
