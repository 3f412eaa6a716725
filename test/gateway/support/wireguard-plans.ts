/** Plans over WireGuard, which is what these tests are about. */
import { describeGatewayPlan as describeBy } from '../../../gateway/describe-plan.ts'
import { type LanesPlan, planLanes as planLanesBy } from '../../../gateway/cable/plan-lanes.ts'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import { type GatewayPlan, planGateway as planGatewayBy } from '../../../gateway/plan-gateway.ts'
import type { GatewayWorld } from '../../../gateway/world.ts'

export const planLanes = (world: GatewayWorld): LanesPlan => planLanesBy(world, wireguardRules)
export const planGateway = (world: GatewayWorld): GatewayPlan => planGatewayBy(world, wireguardRules)
export const describeGatewayPlan = (world: GatewayWorld): string => describeBy(world, wireguardRules)
