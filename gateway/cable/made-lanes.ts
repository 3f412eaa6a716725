/** Whether the lane of this node is there. */
import type { LaneState } from './cable.ts'
import type { LanePlan } from './plan-lanes.ts'

/**
 * For each cluster that is to have a link, one device at least is there and listens where it should. `states`: by far
 * lane.
 */
export function isMade(lanes: readonly LanePlan[], states: ReadonlyMap<number, LaneState>): boolean {
  const listens = ({ remoteLane, port }: LanePlan): boolean => {
    const state = states.get(remoteLane)
    return state !== undefined && (state.port === undefined || state.port === port)
  }
  const clusters = (some: readonly LanePlan[]) => some.flatMap(({ links }) => links.map(({ cluster }) => cluster))
  const served = new Set(clusters(lanes.filter(listens)))
  return clusters(lanes).every((cluster) => served.has(cluster))
}
