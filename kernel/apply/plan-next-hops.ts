/** What has to be done about next-hop objects and groups before the usual difference will do. Pure. */
import { cannotReplace } from '../route/nexthop/check-next-hop.ts'
import type { NextHopGroup, NextHopListing, NextHopObject } from '../route/nexthop/next-hop-table.ts'

/**
 * What stands in the way of the plan: the kernel refuses to replace it in place, whatever the order. Of another sort, kind
 * or number of buckets; and what is to become IPv4, while IPv6 routes may use it. Routes over it go with it, and have to
 * be made anew. Groups before hops. Where ids keep their meaning there is nothing of it.
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

/** A hop that could not be made holds up none of the others in its groups. */
export function planGroups(groups: readonly NextHopGroup[], failed: ReadonlySet<number>): GroupPlan {
  const left = groups.map((group) => ({ ...group, members: group.members.filter(({ id }) => !failed.has(id)) }))
  // A group that was planned without members is a mistake, which the driver is to name.
  const kept = left.filter(({ members }, index) => members.length === 0 && groups[index]?.members.length !== 0)
  return { groups: left.filter((group) => !kept.includes(group)), kept: new Set(kept.map(({ id }) => id)) }
}

function hasIpv4(item: NextHopObject | NextHopGroup, hops: readonly NextHopObject[]): boolean {
  if (!('members' in item)) return item.family === 4
  const members = new Set(item.members.map(({ id }) => id))
  return hops.some(({ id, family }) => family === 4 && members.has(id))
}
