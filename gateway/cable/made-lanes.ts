/** Whether something of the lane of this node is there. */
import type { LaneState } from './cable.ts'
import type { LanePlan } from './plan-lanes.ts'

/** One device of the lane at least is there and listens where it should. True where none is due. `states`: by far lane. */
export function isMade(lanes: readonly LanePlan[], states: ReadonlyMap<number, LaneState>): boolean {
  const listens = ({ remoteLane, port }: LanePlan): boolean => {
    const state = states.get(remoteLane)
    return state !== undefined && (state.port === undefined || state.port === port)
  }
  return lanes.length === 0 || lanes.some(listens)
}
