/**
 * Plans next-hop objects and groups: what must be removed before the difference can be applied, and which routes share
 * a group. Pure.
 */
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
 * Returns what must be removed before the plan can be applied because the kernel refuses to replace it in place: an
 * item that changes its type, kind or number of buckets, and an item that becomes IPv4 while IPv6 routes may use it.
 * The kernel also removes the routes that use such an item, so they must be added again. Groups come before hops. The
 * list is empty as long as ids keep their meaning.
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
  /** Each with its members that exist. */
  readonly groups: readonly NextHopGroup[]
  /** Ids of groups none of whose members could be created. These groups stay unchanged. */
  readonly kept: ReadonlySet<number>
}

/** Leaves out hops that could not be created, so that one failure does not block the other members of a group. */
export function planGroups(groups: readonly NextHopGroup[], failed: ReadonlySet<number>): GroupPlan {
  const left = groups.map((group) => ({ ...group, members: group.members.filter(({ id }) => !failed.has(id)) }))
  // A group that was planned without members goes to the driver, which reports the mistake.
  const kept = left.filter(({ members }, index) => members.length === 0 && groups[index]?.members.length !== 0)
  return { groups: left.filter((group) => !kept.includes(group)), kept: new Set(kept.map(({ id }) => id)) }
}

function hasIpv4(item: NextHopObject | NextHopGroup, hops: readonly NextHopObject[]): boolean {
  if (!('members' in item)) return item.family === 4
  const members = new Set(item.members.map(({ id }) => id))
  return hops.some(({ id, family }) => family === 4 && members.has(id))
}

// Turns routes with several next hops into routes over next-hop groups, one group for each remote cluster and family. A
// route that fails then leaves its group in one message, however many prefixes use it, and no prefix is changed. Pure.
// https://docs.kernel.org/networking/nexthop-group-resilient.html

interface Grouping {
  /** The ids of the caller. */
  readonly ids: NextHopIds
  /** Index of the cluster that the route leads to, 0 to 65535. If undefined, the route stays unchanged. */
  readonly remoteOf: (route: Route) => number | undefined
  /**
   * Number of the hop, 0 to 499, which stays the same as long as a route may use the hop. It must not depend on the
   * position in a list: flows over a hop that remains must keep it. If undefined, routes over the hop stay unchanged.
   */
  readonly numberOf: (hop: NextHop) => number | undefined
}

export interface GroupedRoutes {
  readonly routes: readonly Route[]
  readonly nextHops: NextHopListing
}

/**
 * A hop that returns gets the buckets that have been idle for one second at once, and its full share after ten seconds.
 * So a lane that has returned carries traffic even if no bucket is ever idle.
 */
const RESILIENCE = { buckets: 64, idleTimerMs: 1000, unbalancedTimerMs: 10_000 } as const
const FIRST_GROUP = 1000
const MOST_HOPS = FIRST_GROUP / 2
const MOST_REMOTES = 0x10000

/** Returns the routes unchanged if the kernel does not support next-hop objects. */
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
    // Routes to one cluster normally have the same next hops. A route that differs keeps its own.
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
