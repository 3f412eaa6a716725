/** Probes of gateway nodes over the overlay. */
export { GatewayProbes, type ProbedNodeState } from './gateway-probes.ts'
export { type ProbedNode, planProbeRoutes } from './plan-probe-routes.ts'
