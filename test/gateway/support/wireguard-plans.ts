/** Plans over WireGuard, for the tests that are about WireGuard. */
import {
  type GatewayPlan,
  describeGatewayPlan as describeBy,
  planGateway as planGatewayBy,
} from '../../../gateway/lanes/plan-gateway.ts'
import { type LanesPlan, planLanes as planLanesBy } from '../../../gateway/links/plan-lanes.ts'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import type { GatewayWorld } from '../../../gateway/world/gateway-world.ts'

export const planLanes = (world: GatewayWorld): LanesPlan => planLanesBy(world, wireguardRules)
export const planGateway = (world: GatewayWorld): GatewayPlan => planGatewayBy(world, wireguardRules)
export const describeGatewayPlan = (world: GatewayWorld): string => describeBy(world, wireguardRules)
