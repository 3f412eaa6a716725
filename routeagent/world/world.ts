/** Configuration, metrics, and the facts and ranges of a node. */
export {
  COUNT_CONNECTIONS_MS,
  DEFAULT_VERSION,
  LOOP_TIMING,
  OVERLAY_HOLD_MICROSECONDS,
  REPORT_AGAIN_MS,
  RESYNC_MS,
  type RouteAgentConfig,
  forwardingMarker,
  loopDeps,
} from './config.ts'
export { type RouteAgentMetrics, routeAgentMetrics } from './metrics.ts'
export {
  FactsReader,
  type KernelFacts,
  type NodeRouteWorld,
  type SysctlSetting,
  bridgeHidesAnswers,
  deviceOf,
  ownLanes,
} from './node-world.ts'
export {
  METRIC_VIA_GATEWAY,
  type OverlayNode,
  type PlanProblem,
  hopTo,
  overlayGateway,
  overlayMac,
  overlayNodes,
} from './plan-nodes.ts'
export { type OwnRanges, ownCluster, rangeTexts, rangesByFamily, rangesOfNode } from './plan-own-ranges.ts'
export { type RouteAgentCaches, readWorld, routeAgentCaches, withFacts } from './read-world.ts'
