/** Routes of a node to the gateways, and their loop. */
export { removeNodeRoutes } from './apply-node-routes.ts'
export { clustersetRange } from './plan-family-routes.ts'
export { changesRoutes } from './plan-gateways.ts'
export { type NodeRoutePlan, clusterValidation, planNodeRoutes } from './plan-node-routes.ts'
export { RouteLoop, type Unguarded } from './route-loop.ts'
