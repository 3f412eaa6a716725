/** Which numbers a lane may have, and what a gateway states of the links that it can have. */
import type { ConnectionStatus, Endpoint } from '../model.ts'

/** A cluster has eight gateways at once at most. A gateway has a device for each number that others have. */
export const MAX_LANE = 7

/**
 * Among the capabilities of an Endpoint: its gateway has a device for each remote lane number. One that does not say so,
 * of a release up to 0.1, has links with gateways of its own number only.
 */
export const CAPABILITY_ALL_PAIRS = 'all-pairs'

/**
 * Among the capabilities of an Endpoint: its gateway is about to go. It still takes what comes; whoever has another way
 * to its cluster takes that.
 */
export const CAPABILITY_DRAINING = 'draining'

/**
 * Among the capabilities of an Endpoint: its gateway learns the next key of a far end by the Endpoint, and takes it when
 * that says so through the lane. One that does not say so, of a release up to 0.1, shakes hands anew.
 */
export const CAPABILITY_FOLLOWS_KEYS = 'follows-keys'

/** Among the capabilities of an Endpoint: its gateway answers probes that are padded (kernel/probing/probe-packet.ts). */
export const CAPABILITY_SIZED_PROBES = 'sized-probes'

export function isLaneNumber(value: number): boolean {
  return Number.isInteger(value) && value >= 0 && value <= MAX_LANE
}

/** A node without a word from any other cluster has this device: the one for the number that every cluster has. */
const FIRST_LANE = 0

/**
 * The numbers for which a node that serves a lane has devices, in order, by the numbers of the far gateways. Never none:
 * a device says who its node is, which the others must know before they can have a link.
 */
export function remoteLanes(numbers: Iterable<number>): readonly number[] {
  const used = [...new Set(numbers)].filter(isLaneNumber)
  return used.length === 0 ? [FIRST_LANE] : used.sort((a, b) => a - b)
}

/** By the Endpoints of all clusters: remoteLanes() of those that are not `self`. A gateway may refuse some of them. */
export function statedRemoteLanes(endpoints: readonly Endpoint[], self: string): readonly number[] {
  return remoteLanes(endpoints.filter(({ spec }) => spec.cluster !== self).map(({ spec }) => spec.lane))
}

/** Where a status of an earlier release does not say the far gateway's number, it has that of its own. */
export function remoteLaneOf({ lane, remoteLane }: Pick<ConnectionStatus, 'lane' | 'remoteLane'>): number {
  return remoteLane ?? lane
}

/**
 * How many Endpoints one member may have: eight lanes, and what is left for a while of gateways that handed theirs over.
 * Each of another member's costs a look at every round of every gateway. The broker refuses more, and importers leave
 * out more.
 */
export const MAX_ENDPOINTS_PER_CLUSTER = 64
