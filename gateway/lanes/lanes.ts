/** The main loop of a gateway: read the world, plan, apply, publish, depart. */
export { StaleOwnerGuard, ownEndpoints } from './endpoint-writer.ts'
export { LaneLoop } from './lane-loop.ts'
export { describeGatewayPlan, gatewayPlanText } from './plan-gateway.ts'
export { laneScope } from './plan-lane-routes.ts'
export { readGatewayWorld, readMembership, whenCachesSynced, whyCachesNotSynced } from './read-world.ts'
