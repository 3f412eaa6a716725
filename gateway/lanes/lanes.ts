/** The main loop of a gateway: it reads the world, plans, applies, publishes, and drains. */
export { StaleOwnerGuard, ownEndpoints } from './endpoint-writer.ts'
export { LaneLoop } from './lane-loop.ts'
export { describeGatewayPlan, gatewayPlanText } from './plan-gateway.ts'
export { LANE_GUARD } from './plan-lane-guard.ts'
export { laneScope } from './plan-lane-routes.ts'
export { readGatewayWorld, readMembership, whenCachesSynced, whyCachesNotSynced } from './read-world.ts'
