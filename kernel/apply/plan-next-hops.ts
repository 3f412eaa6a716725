/** What has to be done about next-hop objects and groups before the usual difference will do. Pure. */
import { cannotReplace } from '../route/nexthop/check-next-hop.ts'
import type { NextHopGroup, NextHopListing, NextHopObject } from '../route/nexthop/next-hop-table.ts'

/**
 * What has to be removed before the plan can be applied, since the kernel refuses to replace it in place: an item of
 * another sort, kind or number of buckets, and one that is to become IPv4 while IPv6 routes may use it. The routes over
 * it go with it and have to be made again. Groups come before hops. As long as ids keep their meaning, it is empty.
 */
export function planClearance(
  desired: NextHopListing,
  observed: NextHopListing,
): readonly (NextHopObject | NextHopGroup)[] {
  const wanted = new Map([...desired.hops, ...desired.groups].map((item) => [item.id, item]))
  return [...observed.groups, ...observed.hops].filter((before) => {
    const after = wanted.get(before.id)
    if (after === undefined) return false
    if (cannotReplace(before, after) !== undefined) return true
    return !hasIpv4(before, observed.hops) && hasIpv4(after, desired.hops)
  })
}

export interface GroupPlan {
  /** Each with those of its members that are there. */
  readonly groups: readonly NextHopGroup[]
  /** Ids of those of which no member could be made: they stay as they are. */
  readonly kept: ReadonlySet<number>
}

/** Leaves out hops that could not be made, so that one failure does not hold up the other members of a group. */
export function planGroups(groups: readonly NextHopGroup[], failed: ReadonlySet<number>): GroupPlan {
  const left = groups.map((group) => ({ ...group, members: group.members.filter(({ id }) => !failed.has(id)) }))
  // A group that was planned without members is left to the driver, which names the mistake.
  const kept = left.filter(({ members }, index) => members.length === 0 && groups[index]?.members.length !== 0)
  return { groups: left.filter((group) => !kept.includes(group)), kept: new Set(kept.map(({ id }) => id)) }
}

function hasIpv4(item: NextHopObject | NextHopGroup, hops: readonly NextHopObject[]): boolean {
  if (!('members' in item)) return item.family === 4
  const members = new Set(item.members.map(({ id }) => id))
  return hops.some(({ id, family }) => family === 4 && members.has(id))
}
