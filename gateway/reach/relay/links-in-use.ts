/**
 * What each link of a plan is at present: its far end as planned, its state as probes show it, and where its device sends
 * packets.
 */
import type { RelayCosts } from '../../../model/lanes/lanes.ts'
import type { EndpointCandidate } from '../../../model/model.ts'
import { type CallChoice, type FarEnd, type LinkState, linkKey } from '../../cable/cable.ts'
import { type GatewayWorld, healthKey } from '../../world/world.ts'
import { seeksRelays } from '../plan-candidates.ts'
import { type LinkInUse, NEW_LINK_MS } from './plan-relay-use.ts'

/** The far end of a link as the lane loop plans it. */
export type PlannedFarEnd = FarEnd & {
  readonly cluster: string
  readonly hidden: boolean
  readonly relays?: true
  readonly via?: readonly string[]
  readonly portMapped?: true
  readonly relayCosts?: RelayCosts
  readonly candidates: readonly EndpointCandidate[]
  /** Where the plan calls it. Absent: nowhere. */
  readonly choice?: Pick<CallChoice, 'at'>
}

/** A device as the lane loop plans it. */
export interface PlannedLane {
  readonly remoteLane: number
  readonly port: number
  readonly links: readonly PlannedFarEnd[]
  /** LanePlan.successors. */
  readonly successors: readonly PlannedFarEnd[]
}

/** The links of a device, and those that are only called: a transit link is called at its relays alone. */
export function linksOf(
  world: Pick<GatewayWorld, 'laneStates' | 'health' | 'monotonicMs'>,
  { remoteLane, links, successors }: Pick<PlannedLane, 'remoteLane' | 'links' | 'successors'>,
): LinkInUse[] {
  const served = links.map((link) => linkInUse(world, remoteLane, link))
  // The state by lane and cluster is that of the gateway that serves the lane.
  const called = successors.map((link): LinkInUse => {
    const { isNew: _, ...one } = linkInUse(world, remoteLane, link)
    return { ...one, state: 'connecting', asleep: false }
  })
  return [...served, ...called]
}

function linkInUse(
  { laneStates, health, monotonicMs }: Pick<GatewayWorld, 'laneStates' | 'health' | 'monotonicMs'>,
  remoteLane: number,
  link: PlannedFarEnd,
): LinkInUse {
  const { cluster, endpoint, identity, relays, relayCosts, via, choice } = link
  // Both ends of a link have to ask, so each counts the other as it counts itself.
  const hidden = relays === undefined ? seeksRelays(link) : link.hidden
  const key = linkKey(link)
  const state: LinkState | undefined = laneStates.get(remoteLane)?.links.get(key)
  const {
    state: is = 'connecting',
    asleep = false,
    sinceMs = monotonicMs,
  } = health.get(healthKey(remoteLane, cluster)) ?? {}
  // A relay is asked in the round that calls it first, which gives the device its address only afterwards.
  const at = state === undefined && relays === true ? choice?.at : state?.at
  const isNew = is === 'connecting' && monotonicMs - sinceMs < NEW_LINK_MS
  return {
    ...{ key, remoteLane, cluster, endpoint, identity, hidden },
    ...(relays === undefined ? {} : { relays }),
    ...(via === undefined ? {} : { via }),
    ...(relayCosts === undefined ? {} : { relayCosts }),
    ...{ state: is, asleep },
    ...(isNew ? { isNew } : {}),
    ...(at === undefined ? {} : { at }),
  }
}
