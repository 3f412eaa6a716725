/** Configuration, metrics, and the facts and ranges of a node. */
export {
  COUNT_CONNECTIONS_MS,
  DEFAULT_VERSION,
  LOOP_TIMING,
  OUTSIDE_PODS_MS,
  OVERLAY_HOLD_MICROSECONDS,
  REPORT_AGAIN_MS,
  RESYNC_MS,
  type RouteAgentConfig,
  forwardingMarker,
  hairpinRecord,
  loopDeps,
} from './config.ts'
export { type AddressFamily, addressFamily } from './address-family.ts'
export {
  ACCESS_DROP_REASONS,
  type AccessDropReason,
  NODE_DROP_REASONS,
  type NodeDropReason,
  nodeDropCounter,
  nodeDropCounts,
} from './drop-counts.ts'
export { type PortCounts, type RouteAgentMetrics, routeAgentMetrics } from './metrics.ts'
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
export {
  type AccessCaches,
  type CallerCaches,
  type RouteAgentCaches,
  changesSpec,
  readWorld,
  routeAgentCaches,
  withFacts,
} from './read-world.ts'
