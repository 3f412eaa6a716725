/**
 * Plans the rules that drop packets from a lane which the access rules have not admitted. Nothing else decides about
 * them if every nft table is lost. Pure.
 *
 *   from a lane ─► an address of this node? (input hook) ─► with the mark of the access rules? ─► tables 7310 to 7317
 */
import type { Rule } from '../../kernel/route/route.ts'
import { type Family, plannedFamilies } from '../../model/addresses/addresses.ts'
import {
  ADMITTED_MARK,
  LANE_DEVICE_PREFIX,
  ROUTE_TABLE_LOCAL,
  RULE_NOT_ADMITTED,
  RULE_TO_NODE,
  laneCable,
} from '../../model/model.ts'
import type { GatewayWorld } from '../world/world.ts'

const INCOMING = new RegExp(`^${LANE_DEVICE_PREFIX}\\d+(-rx)?$`)

/** The gateway guards what comes out of its lanes, whichever device it arrives on. */
export const LANE_GUARD = { guards: (device: string): boolean => INCOMING.test(device) }

/** Rules for the devices of the plan, and for those that still exist. None if all pods may be called, or by default. */
export function planLaneGuard(
  init: Pick<GatewayWorld, 'own' | 'exposure' | 'failClosed' | 'laneDevices'>,
  planned: readonly { readonly device: string }[],
): Rule[] {
  const { own, exposure = 'pods', failClosed = false, laneDevices } = init
  if (!failClosed || exposure === 'pods') return []
  const devices = [...new Set([...planned.map(({ device }) => device), ...laneDevices])].sort()
  return plannedFamilies(own).flatMap((family) => devices.flatMap((device) => rulesOf(device, family)))
}

/** The cable of a lane carries only IPv4 (kernel/tuning/segment-joining.ts). */
function rulesOf(device: string, family: Family): Rule[] {
  const incoming = family === 4 ? [device, laneCable(device).rx] : [device]
  return incoming.flatMap((inputDevice): Rule[] => {
    const base = { ...(family === 6 ? { family } : {}), inputDevice } as const
    return [
      { ...base, priority: RULE_TO_NODE, table: ROUTE_TABLE_LOCAL },
      { ...base, priority: RULE_NOT_ADMITTED, table: 0, action: 'blackhole', withoutMark: ADMITTED_MARK },
    ]
  })
}
