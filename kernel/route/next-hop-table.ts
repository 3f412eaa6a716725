/**
 * Next-hop objects and groups of this network namespace (`ip nexthop`), as plain data. Routes name one by its id
 * (route-table.ts Route.nextHopId), so that one message changes the way of all of them.
 * Drivers: rtnetlink-next-hops.ts and fake-next-hops.ts. Compliance: test/compliance/next-hop-table.ts.
 * The kernel's own words: Documentation/networking/nexthop-group-resilient.rst.
 */
import type { Family } from '../../model/addresses/addresses.ts'
import { ROUTE_PROTOCOL } from '../../model/model.ts'

export interface NextHopObject {
  /** Within NEXT_HOP_IDS (model/kernel-ids.ts); hops and groups share the numbers. */
  readonly id: number
  readonly family: Family
  readonly device: string
  /** Gateway address, of that family; absent for a hop straight out of the device. */
  readonly via?: string
  /** The gateway is taken to be in reach of the device. Only with a gateway. */
  readonly onlink?: boolean
}

export interface GroupMember {
  readonly id: number
  /** 1 to 255; absent: 1, listed as absent. */
  readonly weight?: number
}

/** Groups do not nest. An IPv6 route takes only a group without an IPv4 member: have one for each family. */
export type NextHopGroup = PlainGroup | ResilientGroup

/** The hash of a flow falls into the share of a member. Any change of members moves flows between those that stay. */
export interface PlainGroup {
  readonly kind: 'plain'
  readonly id: number
  /** At least one; none twice. Listed in order of their ids. */
  readonly members: readonly GroupMember[]
}

/**
 * The hash of a flow chooses a bucket, and the bucket has a member. When a member is removed, its own buckets alone go
 * to the others, at once. A member that is added, or gets more weight, is given buckets in which nothing has flowed for
 * the idle timer. When the group has been out of balance for the unbalanced timer, it is given busy ones too.
 */
export interface ResilientGroup {
  readonly kind: 'resilient'
  readonly id: number
  readonly members: readonly GroupMember[]
  /** 1 to 65535. Cannot be changed while the group is there. */
  readonly buckets: number
  /** Whole multiples of 100 ms, since kernels round to their tick. */
  readonly idleTimerMs: number
  /** The same; 0: busy buckets are never moved, and a member that comes back may stay without traffic. */
  readonly unbalancedTimerMs: number
}

/** One of the buckets of a resilient group. */
export interface Bucket {
  readonly index: number
  /** Id of the hop that it leads to. */
  readonly member: number
  /**
   * Time since something flowed, or since the bucket has had this member. A bucket that has carried nothing for its
   * member counts as idle at once, whatever the timer.
   */
  readonly idleMs: number
}

export interface NextHopListing {
  readonly hops: readonly NextHopObject[]
  readonly groups: readonly NextHopGroup[]
}

/** What this kernel has. */
export interface NextHopFeatures {
  /** Next-hop objects and plain groups: Linux 5.3. */
  readonly objects: boolean
  /** Resilient groups: Linux 5.13. */
  readonly resilient: boolean
}

/** Of a kernel before 5.3, or where nobody has asked. */
export const NO_NEXT_HOP_FEATURES: NextHopFeatures = { objects: false, resilient: false }

/**
 * All calls throw KernelError; EOPNOTSUPP where the kernel has no such thing. Only items with our protocol number
 * (ROUTE_PROTOCOL) and an id of ours (NEXT_HOP_IDS) are listed, changed or removed.
 */
export interface NextHopTable {
  /** Changes nothing. */
  features(signal?: AbortSignal): Promise<NextHopFeatures>
  /** Ours only, by ascending id; nothing where the kernel has no next-hop objects. */
  list(signal?: AbortSignal): Promise<NextHopListing>
  /**
   * Makes it, or replaces the hop of that id in place: flows that it carries go the new way, and routes and groups keep
   * it. Throws ENODEV (no such device, or one that does not carry the family), ENETDOWN (the device is down or has no
   * carrier), ENETUNREACH or, for IPv6, EHOSTUNREACH (no address of the device reaches the gateway), EINVAL (the id is
   * that of a group, or IPv6 routes need it to be IPv6), EEXIST (another program has the id).
   */
  replaceHop(hop: NextHopObject, signal?: AbortSignal): Promise<void>
  /**
   * Makes it, or replaces members, weights and timers of the group of that id in place; routes keep it. Of a resilient
   * group the kernel moves only buckets of members that are gone, at once, and idle ones: flows of members that stay
   * are not disturbed. Throws ENOENT (a member is missing), EINVAL (kind or number of buckets is another one, the id is
   * that of a hop, a member is a group, IPv6 routes use it and a member is IPv4), EEXIST (another program has the id).
   */
  replaceGroup(group: NextHopGroup, signal?: AbortSignal): Promise<void>
  /**
   * Removes a hop or a group. The kernel takes a hop out of its groups, and removes groups that become empty and routes
   * that name what is gone, IPv4 routes without a notification. Throws ENOENT.
   */
  remove(id: number, signal?: AbortSignal): Promise<void>
  /** All buckets of a resilient group, by index. Throws ENOENT; EINVAL for anything that has no buckets. */
  buckets(id: number, signal?: AbortSignal): Promise<readonly Bucket[]>
  /**
   * Calls back (coalesced) when next-hop objects, groups or links change, whatever program changed them. Links are
   * included because the kernel removes the hops of a device that stops, goes or loses its carrier, and sends no
   * notification about these hops: list again then.
   */
  onChange(listener: () => void): () => void
  close(): void
}

/** How much of a group a member carries. */
export interface MemberShare {
  readonly member: number
  readonly buckets: number
  /** Time since something flowed in one of them. */
  readonly idleMs: number
}

/** What each member of a group holds, by ascending id. */
export function memberShares(buckets: readonly Bucket[]): readonly MemberShare[] {
  const shares = new Map<number, MemberShare>()
  for (const { member, idleMs } of buckets) {
    const before = shares.get(member) ?? { member, buckets: 0, idleMs }
    shares.set(member, { member, buckets: before.buckets + 1, idleMs: Math.min(before.idleMs, idleMs) })
  }
  return [...shares.values()].sort((a, b) => a.member - b.member)
}

// Next-hop objects and groups as the `ip nexthop` command that makes them.

export function formatHop({ id, family, device, via, onlink }: NextHopObject): string {
  // The tool takes the family from the gateway; without one it needs -6.
  const tool = family === 6 ? 'ip -6' : 'ip'
  const gateway = via === undefined ? '' : `via ${via} `
  return (
    `${tool} nexthop replace id ${id} ${gateway}dev ${device}${onlink === true ? ' onlink' : ''} ` +
    `proto ${ROUTE_PROTOCOL}`
  )
}

/** Members in order of their ids. */
export function formatGroup(group: NextHopGroup): string {
  const members = sortedMembers(group.members).map(({ id, weight = 1 }) => (weight === 1 ? `${id}` : `${id},${weight}`))
  const kind = group.kind === 'resilient' ? ` ${formatResilience(group)}` : ''
  return `ip nexthop replace id ${group.id} group ${members.join('/')}${kind} proto ${ROUTE_PROTOCOL}`
}

export function formatNextHopDeletion({ id }: { readonly id: number }): string {
  return `ip nexthop del id ${id}`
}

export function sortedMembers(members: readonly GroupMember[]): readonly GroupMember[] {
  return [...members].sort((a, b) => a.id - b.id)
}

function formatResilience({
  buckets,
  idleTimerMs,
  unbalancedTimerMs,
}: Extract<NextHopGroup, { readonly kind: 'resilient' }>): string {
  const [idle, unbalanced] = [idleTimerMs / 1000, unbalancedTimerMs / 1000]
  return `type resilient buckets ${buckets} idle_timer ${idle} unbalanced_timer ${unbalanced}`
}
