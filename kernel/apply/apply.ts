/** One round over routes and rules: observe, apply the difference. */
export { NO_ROUTING, type RoutingScope, applyRouting } from './apply-routing.ts'
export { type GroupedRoutes, groupRoutes } from './plan-next-hops.ts'
export { Round } from './round.ts'
