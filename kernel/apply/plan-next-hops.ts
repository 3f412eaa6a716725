/** What has to be done about next-hop objects and groups before the usual difference will do. Pure. */
import { type Family, familyOf } from '../../model/addresses/addresses.ts'
import type { NextHopIds } from '../../model/model.ts'
import {
  type NextHop,
  type NextHopFeatures,
  type NextHopGroup,
  type NextHopListing,
  type NextHopObject,
  type Route,
  cannotReplace,
} from '../route/route.ts'

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

// From routes with several next hops to routes over next-hop groups, one for each remote cluster and family: a way that
// fails leaves its group in one message, whatever number of routes there is, and no route is touched. Pure.
// https://docs.kernel.org/networking/nexthop-group-resilient.html

interface Grouping {
  /** Of the caller. */
  readonly ids: NextHopIds
  /** Index of the cluster that the route leads to, 0 to 65535; undefined: the route stays as it is. */
  readonly remoteOf: (route: Route) => number | undefined
  /**
   * What the hop is called for as long as a route may use it, 0 to 499: not by its place in a list, so that what stays
   * keeps its flows. Undefined: routes over it stay as they are.
   */
  readonly numberOf: (hop: NextHop) => number | undefined
}

export interface GroupedRoutes {
  readonly routes: readonly Route[]
  readonly nextHops: NextHopListing
}

/**
 * A way that comes back is given what has been idle for a second at once, and its whole share after ten: a lane that
 * has returned carries again, also where nothing is ever idle.
 */
const RESILIENCE = { buckets: 64, idleTimerMs: 1000, unbalancedTimerMs: 10_000 } as const
const FIRST_GROUP = 1000
const MOST_HOPS = FIRST_GROUP / 2
const MOST_REMOTES = 0x10000

/** Without next-hop objects in the kernel, everything stays as it is. */
export function groupRoutes(routes: readonly Route[], features: NextHopFeatures, grouping: Grouping): GroupedRoutes {
  if (!features.objects) return { routes, nextHops: { hops: [], groups: [] } }
  const hops = new Map<number, NextHopObject>()
  const groups = new Map<number, NextHopGroup>()
  const grouped = routes.map((route) => {
    const family = familyOf(route.destination)
    const remote = grouping.remoteOf(route)
    const members = hopObjects(route, family, grouping)
    if (remote === undefined || remote >= MOST_REMOTES || members === undefined) return route
    const id = grouping.ids.first + FIRST_GROUP + idOffset(remote, family)
    const group = groupOf(id, members, features)
    const known = groups.get(id)
    // Routes to one cluster all go the same ways; one that does not keeps its own.
    if (known !== undefined && JSON.stringify(known) !== JSON.stringify(group)) return route
    groups.set(id, group)
    for (const { object } of members) hops.set(object.id, object)
    return { ...route, nextHops: [], nextHopId: id }
  })
  const byId = <T extends { readonly id: number }>(items: Iterable<T>): T[] => [...items].sort((a, b) => a.id - b.id)
  return { routes: grouped, nextHops: { hops: byId(hops.values()), groups: byId(groups.values()) } }
}

interface Member {
  readonly object: NextHopObject
  readonly weight: number
}

function hopObjects({ type, nextHops }: Route, family: Family, { ids, numberOf }: Grouping): Member[] | undefined {
  if (type !== 'unicast' || nextHops.length === 0) return undefined
  const members: Member[] = []
  for (const hop of nextHops) {
    const number = numberOf(hop)
    if (number === undefined || number >= MOST_HOPS) return undefined
    const { weight = 1, ...way } = hop
    members.push({ object: { id: ids.first + idOffset(number, family), family, ...way }, weight })
  }
  const isUnique = new Set(members.map(({ object }) => object.id)).size === members.length
  return isUnique ? members.sort((a, b) => a.object.id - b.object.id) : undefined
}

function groupOf(id: number, of: readonly Member[], { resilient }: NextHopFeatures): NextHopGroup {
  const members = of.map(({ object, weight }) => ({ id: object.id, ...(weight === 1 ? {} : { weight }) }))
  return resilient ? { kind: 'resilient', id, members, ...RESILIENCE } : { kind: 'plain', id, members }
}

function idOffset(number: number, family: Family): number {
  return 2 * number + (family === 6 ? 1 : 0)
}
