/** Configuration, metrics and the world that a gateway's plans depend on. */
export {
  type GatewayConfig,
  type GatewayConfigInit,
  type GatewayLaneConfig,
  forwarding,
  gatewayConfig,
} from './config.ts'
export { type GatewayDeps, type GatewayLoopDeps, loopDeps } from './deps.ts'
export {
  type GatewayWorld,
  type PeerHealthView,
  type PublicNameView,
  type PunchedPlace,
  type RelayPlace,
  type RoamedLink,
  clusterOfKey,
  healthKey,
} from './gateway-world.ts'
export { type GatewayMetrics, gatewayMetrics, laneLabels } from './metrics.ts'
