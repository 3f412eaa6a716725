/**
 * The interface to next-hop objects and groups of this network namespace (`ip nexthop`), as plain data. Routes refer to
 * one by its id (route-table.ts Route.nextHopId), so that one message changes all of them.
 * Drivers: rtnetlink-next-hops.ts and fake-next-hops.ts. Compliance: test/compliance/next-hop-table.ts.
 * Kernel documentation: Documentation/networking/nexthop-group-resilient.rst.
 */
import type { Family } from '../../model/addresses/addresses.ts'
import { ROUTE_PROTOCOL } from '../../model/model.ts'

export interface NextHopObject {
  /** Within NEXT_HOP_IDS (model/kernel-ids.ts). Hops and groups share the ids. */
  readonly id: number
  readonly family: Family
  readonly device: string
  /** Gateway address of the same family. Absent for a directly connected device. */
  readonly via?: string
  /** Assumes that the gateway is reachable on the device. Only with a gateway. */
  readonly onlink?: boolean
}

export interface GroupMember {
  readonly id: number
  /** 1 to 255. Defaults to 1, which is listed as absent. */
  readonly weight?: number
}

/** Groups do not nest. An IPv6 route accepts only a group without IPv4 members, so each family needs its own group. */
export type NextHopGroup = PlainGroup | ResilientGroup

/**
 * The hash of a flow selects a member according to the weights. Any change of members moves flows between the members
 * that stay.
 */
export interface PlainGroup {
  readonly kind: 'plain'
  readonly id: number
  /** At least one member, without duplicates. Listed by id. */
  readonly members: readonly GroupMember[]
}

/**
 * The hash of a flow selects a bucket, and each bucket belongs to a member. When a member is removed, only its own
 * buckets move to other members, at once. A member that is added or gains weight receives buckets that have been idle
 * for the idle timer. When the group has been unbalanced for the unbalanced timer, the member receives busy buckets
 * too.
 */
export interface ResilientGroup {
  readonly kind: 'resilient'
  readonly id: number
  readonly members: readonly GroupMember[]
  /** 1 to 65535. Cannot be changed while the group exists. */
  readonly buckets: number
  /** A multiple of 100 ms, since kernels round to their tick. */
  readonly idleTimerMs: number
  /** A multiple of 100 ms. If 0, busy buckets never move, and a member that comes back may get no traffic. */
  readonly unbalancedTimerMs: number
}

/** One bucket of a resilient group. */
export interface Bucket {
  readonly index: number
  /** Id of the hop that the bucket belongs to. */
  readonly member: number
  /**
   * Time since the last packet, or since the bucket has belonged to this member. A bucket that has carried nothing for
   * its member counts as idle at once, whatever the timer.
   */
  readonly idleMs: number
}

export interface NextHopListing {
  readonly hops: readonly NextHopObject[]
  readonly groups: readonly NextHopGroup[]
}

/** What this kernel supports. */
export interface NextHopFeatures {
  /** Next-hop objects and plain groups: Linux 5.3. */
  readonly objects: boolean
  /** Resilient groups: Linux 5.13. */
  readonly resilient: boolean
}

/** The features of a kernel before 5.3, also used if the features are not known. */
export const NO_NEXT_HOP_FEATURES: NextHopFeatures = { objects: false, resilient: false }

/**
 * All calls throw KernelError, with EOPNOTSUPP if the kernel lacks the feature. Only items with our protocol number
 * (ROUTE_PROTOCOL) and an id of ours (NEXT_HOP_IDS) are listed, changed or removed.
 */
export interface NextHopTable {
  /** Changes nothing. */
  features(signal?: AbortSignal): Promise<NextHopFeatures>
  /** Lists only our items, by ascending id. Empty if the kernel has no next-hop objects. */
  list(signal?: AbortSignal): Promise<NextHopListing>
  /**
   * Adds a hop, or replaces the hop of that id in place: its flows take the new route, and routes and groups keep it.
   * Throws ENODEV (no such device, or it does not carry the family), ENETDOWN (the device is down or has no carrier),
   * ENETUNREACH or, for IPv6, EHOSTUNREACH (no address of the device reaches the gateway), EINVAL (the id belongs to a
   * group, or IPv6 routes need the hop to be IPv6), EEXIST (the id belongs to another program).
   */
  replaceHop(hop: NextHopObject, signal?: AbortSignal): Promise<void>
  /**
   * Adds a group, or replaces members, weights and timers of the group of that id in place; routes keep it. In a
   * resilient group, the kernel moves only the buckets of removed members, at once, and idle buckets: flows over
   * members that stay are not disturbed. Throws ENOENT (a member is missing), EINVAL (the kind or number of buckets
   * differs, the id belongs to a hop, a member is a group, or a member is IPv4 while IPv6 routes use the group), EEXIST
   * (the id belongs to another program).
   */
  replaceGroup(group: NextHopGroup, signal?: AbortSignal): Promise<void>
  /**
   * Removes a hop or a group. The kernel removes a hop from its groups, and also removes groups that become empty and
   * routes that refer to removed items, IPv4 routes without a notification. Throws ENOENT.
   */
  remove(id: number, signal?: AbortSignal): Promise<void>
  /** Returns all buckets of a resilient group, by index. Throws ENOENT, or EINVAL if the item has no buckets. */
  buckets(id: number, signal?: AbortSignal): Promise<readonly Bucket[]>
  /**
   * Calls `listener` (coalesced) when any program changes next-hop objects, groups or links. Links are included because
   * the kernel removes the hops of a device that stops, is removed or loses its carrier, and sends no notification
   * about these hops. The caller must list again then.
   */
  onChange(listener: () => void): () => void
  close(): void
}

/** The share of a member in a resilient group. */
export interface MemberShare {
  readonly member: number
  readonly buckets: number
  /** Time since the last packet in any of its buckets. */
  readonly idleMs: number
}

/** Returns the share of each member, by ascending id. */
export function memberShares(buckets: readonly Bucket[]): readonly MemberShare[] {
  const shares = new Map<number, MemberShare>()
  for (const { member, idleMs } of buckets) {
    const before = shares.get(member) ?? { member, buckets: 0, idleMs }
    shares.set(member, { member, buckets: before.buckets + 1, idleMs: Math.min(before.idleMs, idleMs) })
  }
  return [...shares.values()].sort((a, b) => a.member - b.member)
}

// Formats next-hop objects and groups as the `ip nexthop` commands that create them.

export function formatHop({ id, family, device, via, onlink }: NextHopObject): string {
  // The tool derives the family from the gateway. Without a gateway it needs -6.
  const tool = family === 6 ? 'ip -6' : 'ip'
  const gateway = via === undefined ? '' : `via ${via} `
  return (
    `${tool} nexthop replace id ${id} ${gateway}dev ${device}${onlink === true ? ' onlink' : ''} ` +
    `proto ${ROUTE_PROTOCOL}`
  )
}

/** Members are sorted by id. */
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
