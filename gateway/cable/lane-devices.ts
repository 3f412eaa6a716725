/** The lane devices of this node, whatever cable made them. */
import { LANE_DEVICE_PREFIX } from '../../model/kernel-ids.ts'
import type { RouteTable } from '../../kernel/route/route-table.ts'

const LANE_DEVICE = new RegExp(`^${LANE_DEVICE_PREFIX}\\d+$`)

/** Names of all that exist. Throws KernelError. */
export async function laneDeviceNames(routes: RouteTable, signal: AbortSignal): Promise<string[]> {
  return (await routes.links(signal)).map(({ name }) => name).filter((name) => LANE_DEVICE.test(name))
}
