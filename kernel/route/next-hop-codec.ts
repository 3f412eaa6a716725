/**
 * Encodes and decodes next-hop objects, groups and buckets as rtnetlink messages: struct nhmsg and nexthop_grp,
 * linux/nexthop.h.
 */
import { ROUTE_PROTOCOL } from '../../model/model.ts'
import { normalGroup, normalHop } from './check-next-hop.ts'
import { watchGroups } from './netlink-socket.ts'
import type { Bucket, GroupMember, NextHopGroup, NextHopObject } from './next-hop-table.ts'
import {
  AF_INET,
  AF_INET6,
  type Attribute,
  addressBytes,
  addressFamily,
  attributes,
  body,
  nested,
  readAddress,
  readU16,
  readU32,
  readU64,
  u16,
  u32,
} from './rtnetlink-codec.ts'
import type { DeviceNames } from './rtnetlink-route.ts'

export const RTM_NEWNEXTHOP = 104
export const RTM_DELNEXTHOP = 105
export const RTM_GETNEXTHOP = 106
export const RTM_NEWNEXTHOPBUCKET = 116
export const RTM_GETNEXTHOPBUCKET = 118

const NHMSG_BYTES = 8
const MEMBER_BYTES = 8
const AF_UNSPEC = 0
const NHA = { ID: 1, GROUP: 2, GROUP_TYPE: 3, OIF: 5, GATEWAY: 6, RES_GROUP: 12, RES_BUCKET: 13 } as const
const RES_GROUP = { BUCKETS: 1, IDLE_TIMER: 2, UNBALANCED_TIMER: 3 } as const
const RES_BUCKET = { INDEX: 1, IDLE_TIME: 2, NH_ID: 3 } as const
const GROUP_TYPES = { plain: 0, resilient: 1 } as const
const RTNH_F_ONLINK = 4
/** A clock_t: USER_HZ is 100 on every architecture that Sealane supports. */
const MS_PER_TICK = 10

/** `index` is the number of the device. */
export function encodeHop({ id, family, via, onlink }: NextHopObject, index: number): Uint8Array[] {
  const list: Attribute[] = [
    [NHA.ID, u32(id)],
    [NHA.OIF, u32(index)],
  ]
  if (via !== undefined) list.push([NHA.GATEWAY, addressBytes(via)])
  return body(nhmsg(addressFamily(family), ROUTE_PROTOCOL, onlink === true ? RTNH_F_ONLINK : 0), list)
}

export function encodeGroup(group: NextHopGroup): Uint8Array[] {
  const { id, kind, members } = normalGroup(group)
  const list: Attribute[] = [
    [NHA.ID, u32(id)],
    [NHA.GROUP, Buffer.concat(members.map(encodeMember))],
    [NHA.GROUP_TYPE, u16(GROUP_TYPES[kind])],
  ]
  if (group.kind === 'resilient') {
    const resilience: Attribute[] = [
      [RES_GROUP.BUCKETS, u16(group.buckets)],
      [RES_GROUP.IDLE_TIMER, u32(group.idleTimerMs / MS_PER_TICK)],
      [RES_GROUP.UNBALANCED_TIMER, u32(group.unbalancedTimerMs / MS_PER_TICK)],
    ]
    list.push([nested(NHA.RES_GROUP), resilience])
  }
  return body(nhmsg(AF_UNSPEC, ROUTE_PROTOCOL, 0), list)
}

/** Encodes a request that names one item: to get it, to remove it, or to list its buckets. */
export function encodeNextHopId(id: number): Uint8Array[] {
  return body(nhmsg(AF_UNSPEC, 0, 0), [[NHA.ID, u32(id)]])
}

/** The kernel can filter by device or kind but not by protocol, so it lists all items and the caller selects ours. */
export function encodeNextHopDump(): Uint8Array[] {
  return body(nhmsg(AF_UNSPEC, 0, 0), [])
}

/** An item of any program in a listing. */
export interface ListedNextHop {
  readonly id: number
  readonly protocol: number
  /** Undefined for items that Sealane never creates: a blackhole, a next hop of a bridge, an unknown kind of group. */
  readonly item: NextHopObject | NextHopGroup | undefined
}

/** Returns undefined if the message cannot be parsed. */
export function decodeNextHop(data: Buffer, name: DeviceNames): ListedNextHop | undefined {
  const found = attributesOf(data, NHMSG_BYTES)
  const id = number32(found?.get(NHA.ID))
  if (found === undefined || id === undefined) return undefined
  const item = found.has(NHA.GROUP) ? decodeGroup(id, found) : decodeHop(id, data, found, name)
  return { id, protocol: data.readUInt8(2), item }
}

/** Returns undefined if the message cannot be parsed, or if the bucket belongs to another group. */
export function decodeBucket(data: Buffer, group: number): Bucket | undefined {
  const found = attributesOf(data, NHMSG_BYTES)
  if (number32(found?.get(NHA.ID)) !== group) return undefined
  const inner = attributesOf(found?.get(NHA.RES_BUCKET), 0)
  const index = number16(inner?.get(RES_BUCKET.INDEX))
  const member = number32(inner?.get(RES_BUCKET.NH_ID))
  const idle = inner?.get(RES_BUCKET.IDLE_TIME)
  if (index === undefined || member === undefined || idle?.length !== 8) return undefined
  return { index, member, idleMs: Number(readU64(idle)) * MS_PER_TICK }
}

function decodeHop(
  id: number,
  data: Buffer,
  found: ReadonlyMap<number, Buffer>,
  name: DeviceNames,
): NextHopObject | undefined {
  const number = data.readUInt8(0)
  const device = number32(found.get(NHA.OIF))
  const via = found.get(NHA.GATEWAY)
  if (device === undefined || (number !== AF_INET && number !== AF_INET6)) return undefined
  const family = number === AF_INET ? 4 : 6
  if (via !== undefined && via.length !== (family === 4 ? 4 : 16)) return undefined
  return normalHop({
    id,
    family,
    device: name(device) ?? `if${device}`,
    ...(via === undefined ? {} : { via: readAddress(via) }),
    onlink: via !== undefined && (readU32(data, 4) & RTNH_F_ONLINK) !== 0,
  })
}

function decodeGroup(id: number, found: ReadonlyMap<number, Buffer>): NextHopGroup | undefined {
  const type = number16(found.get(NHA.GROUP_TYPE))
  const bytes = found.get(NHA.GROUP)
  if (bytes === undefined || bytes.length === 0 || bytes.length % MEMBER_BYTES !== 0) return undefined
  const members: GroupMember[] = []
  for (let at = 0; at < bytes.length; at += MEMBER_BYTES) members.push(decodeMember(bytes, at))
  if (type === GROUP_TYPES.plain) return normalGroup({ kind: 'plain', id, members })
  const inner = type === GROUP_TYPES.resilient ? attributesOf(found.get(NHA.RES_GROUP), 0) : undefined
  const buckets = number16(inner?.get(RES_GROUP.BUCKETS))
  const idle = number32(inner?.get(RES_GROUP.IDLE_TIMER))
  const unbalanced = number32(inner?.get(RES_GROUP.UNBALANCED_TIMER))
  if (buckets === undefined || idle === undefined || unbalanced === undefined) return undefined
  const timers = { idleTimerMs: idle * MS_PER_TICK, unbalancedTimerMs: unbalanced * MS_PER_TICK }
  return normalGroup({ kind: 'resilient', id, members, buckets, ...timers })
}

/** The field contains the weight minus 1. Since Linux 6.12 its upper byte follows the lower one. */
function encodeMember({ id, weight = 1 }: GroupMember): Buffer {
  return Buffer.concat([u32(id), Buffer.from([weight - 1, 0, 0, 0])])
}

function decodeMember(bytes: Buffer, at: number): GroupMember {
  return { id: readU32(bytes, at), weight: bytes.readUInt8(at + 4) + bytes.readUInt8(at + 5) * 256 + 1 }
}

function nhmsg(family: number, protocol: number, flags: number): Buffer {
  return Buffer.concat([Buffer.from([family, 0, protocol, 0]), u32(flags)])
}

/** Returns undefined if the attributes are truncated or malformed. */
function attributesOf(data: Buffer | undefined, skip: number): ReadonlyMap<number, Buffer> | undefined {
  if (data === undefined || data.length < skip) return undefined
  try {
    return attributes(data, skip)
  } catch {
    return undefined
  }
}

function number16(bytes: Buffer | undefined): number | undefined {
  return bytes?.length === 2 ? readU16(bytes) : undefined
}

function number32(bytes: Buffer | undefined): number | undefined {
  return bytes?.length === 4 ? readU32(bytes) : undefined
}

// Notifications about next-hop objects and groups.

/** RTNLGRP_NEXTHOP. A kernel without next-hop objects also accepts the number, and sends nothing. */
const NEXT_HOP_GROUP = 32

/**
 * Calls `listener` (coalesced) when next-hop objects or groups change, but not when the kernel moves buckets, which
 * happens every few seconds under traffic. Returns the function that ends the watch. Throws KernelError.
 */
export function watchNextHops(listener: () => void): () => void {
  return watchGroups([NEXT_HOP_GROUP], listener, ({ type }) => type !== RTM_NEWNEXTHOPBUCKET)
}
