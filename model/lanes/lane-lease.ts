/**
 * The Lease by which the gateways of one cluster agree on who serves a lane: each lane number has one. Its holder
 * publishes its end of the lane to the others; the other nodes with the same label stand by.
 */
import type { Lease } from '../objects.ts'
import { MAX_LANE } from './lane-number.ts'

/** Name of the Lease, in the namespace that Sealane is installed in. */
export function laneLeaseName(lane: number): string {
  return `${LANE_LEASE_PREFIX}${lane}`
}

/** Nodes that hold a lane, by the Leases that a cache has. */
export function laneHolders(leases: readonly Lease[]): ReadonlySet<string> {
  const ours = leases.filter(({ metadata }) => metadata.name.startsWith(LANE_LEASE_PREFIX))
  return new Set(ours.flatMap(({ spec }) => spec?.holderIdentity || []))
}

/** The lane that a node holds; undefined: none. */
export function laneOfHolder(leases: readonly Lease[], node: string): number | undefined {
  return Array.from({ length: MAX_LANE + 1 }, (_, lane) => lane).find((lane) =>
    leases.some(({ metadata, spec }) => metadata.name === laneLeaseName(lane) && spec?.holderIdentity === node),
  )
}

export const LANE_LEASE_PREFIX = 'sealane-lane-'

/** Beside them: what the agent knows of each other cluster. */
export const CLUSTER_LEASE_PREFIX = 'sealane-cluster-'

/** On the Lease, by its holder: why another node should take it at once. The holder serves until one has. */
export const ANNOTATION_HANDOVER = 'sealane.io/handover'
