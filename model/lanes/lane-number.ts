/** Which numbers a lane may have, and what a gateway states of the links that it can have. */
import type { ConnectionStatus } from '../objects.ts'

/** A cluster has eight gateways at once at most. A gateway has a device for each number that others have. */
export const MAX_LANE = 7

/**
 * Among the capabilities of an Endpoint: its gateway has a device for each remote lane number. One that does not say so,
 * of a release up to 0.1, has links with gateways of its own number only.
 */
export const CAPABILITY_ALL_PAIRS = 'all-pairs'

export function isLaneNumber(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= MAX_LANE
}

/** Where a status of an earlier release does not say the far gateway's number, it has that of its own. */
export function remoteLaneOf({ lane, remoteLane }: Pick<ConnectionStatus, 'lane' | 'remoteLane'>): number {
  return remoteLane ?? lane
}
