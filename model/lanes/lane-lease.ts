/**
 * The Lease by which the gateways of one cluster agree on who serves a lane: each lane number has one. Its holder
 * publishes its end of the lane to the others; the other nodes with the same label stand by.
 */

/** Name of the Lease, in the namespace that Sealane is installed in. */
export function laneLeaseName(lane: number): string {
  return `${LANE_LEASE_PREFIX}${lane}`
}

export const LANE_LEASE_PREFIX = 'sealane-lane-'

/** Beside them: what the agent knows of each other cluster. */
export const CLUSTER_LEASE_PREFIX = 'sealane-cluster-'

/** On the Lease, by its holder: why another node should take it at once. The holder serves until one has. */
export const ANNOTATION_HANDOVER = 'sealane.io/handover'
