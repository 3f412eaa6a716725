/**
 * Encodes and decodes routes and rules as rtnetlink messages: struct rtmsg, rtnexthop and fib_rule_hdr,
 * linux/rtnetlink.h, fib_rules.h.
 */
import { familyOf, type Family } from '../../model/addresses/addresses.ts'
import { ROUTE_PROTOCOL } from '../../model/model.ts'
import { normalRoute, routeMetric } from './check-route.ts'
import {
  addressBytes,
  addressFamily,
  AF_INET6,
  attributes,
  body,
  cString,
  readAddress,
  readCString,
  readU16,
  readU32,
  u16,
  u32,
  u8,
  type Attribute,
} from './rtnetlink-codec.ts'
import type { MainRoute, NextHop, Route, Rule } from './route-table.ts'

export const RTM_NEWROUTE = 24
export const RTM_DELROUTE = 25
export const RTM_GETROUTE = 26
export const RTM_NEWRULE = 32
export const RTM_DELRULE = 33
export const RTM_GETRULE = 34

const RTMSG_BYTES = 12
const RULE_BYTES = 12
const NEXT_HOP_BYTES = 8

const RTA = {
  DST: 1,
  OIF: 4,
  GATEWAY: 5,
  PRIORITY: 6,
  PREFSRC: 7,
  METRICS: 8,
  MULTIPATH: 9,
  TABLE: 15,
  MARK: 16,
  VIA: 18,
  NH_ID: 30,
} as const
const RTAX_MTU = 2
const FRA = {
  DST: 1,
  SRC: 2,
  IIFNAME: 3,
  PRIORITY: 6,
  FWMARK: 10,
  SUPPRESS_PREFIXLEN: 14,
  TABLE: 15,
  FWMASK: 16,
  PROTOCOL: 21,
  IP_PROTO: 22,
  SPORT: 23,
  DPORT: 24,
} as const
const IP_PROTO_NUMBERS = { tcp: 6, udp: 17 } as const

const RT_TABLE_COMPAT = 252
const RT_TABLE_MAIN = 254
const RT_SCOPE_UNIVERSE = 0
const RT_SCOPE_LINK = 253
const RT_SCOPE_NOWHERE = 255
const RTN_UNICAST = 1
const RTN_BLACKHOLE = 6
const RTN_UNREACHABLE = 7
const RTN_THROW = 9
/** The types of the routes that Sealane creates. */
const TYPE_NUMBERS = { unicast: RTN_UNICAST, unreachable: RTN_UNREACHABLE, throw: RTN_THROW } as const
const RTNH_F_ONLINK = 4
/** Marks a cached exception (path MTU) of a route, which is not a route itself. */
const RTM_F_CLONED = 0x200
const FR_ACT_TO_TBL = 1
const FR_ACT_BLACKHOLE = 6
/** `not`: the rule applies to packets that do not match. */
const FIB_RULE_INVERT = 2
const WHOLE_MARK = 0xffffffff

/** `index` returns the number of a device. */
export function encodeRoute(route: Route, index: (device: string) => number): Uint8Array[] {
  const only = route.nextHops.length === 1 ? route.nextHops[0] : undefined
  const list = routeKey(route)
  if (route.source !== undefined) list.push([RTA.PREFSRC, addressBytes(route.source)])
  // Without any metric, the kernel reuses the metrics of another route over the same group, including its MTU.
  const mtu = route.mtu ?? (route.nextHopId === undefined ? undefined : 0)
  if (mtu !== undefined) list.push([RTA.METRICS, [[RTAX_MTU, u32(mtu)]]])
  if (only !== undefined) {
    list.push([RTA.OIF, u32(index(only.device))])
    if (only.via !== undefined) list.push([RTA.GATEWAY, addressBytes(only.via)])
  } else if (route.nextHops.length > 1) {
    list.push([RTA.MULTIPATH, Buffer.concat(route.nextHops.map((hop) => encodeNextHop(hop, index(hop.device))))])
  } else if (route.nextHopId !== undefined) {
    list.push([RTA.NH_ID, u32(route.nextHopId)])
  }
  const scope = only !== undefined && only.via === undefined ? RT_SCOPE_LINK : RT_SCOPE_UNIVERSE
  return body(rtmsg(route, scope, only?.onlink === true ? RTNH_F_ONLINK : 0), list)
}

/** Identifies the route by destination, table, metric, type and our protocol number. */
export function encodeRouteDeletion(route: Route): Uint8Array[] {
  return body(rtmsg(route, RT_SCOPE_NOWHERE, 0), routeKey(route))
}

export function encodeRouteDump(family: Family): Uint8Array[] {
  return body(Buffer.concat([u8(addressFamily(family)), Buffer.alloc(RTMSG_BYTES - 1)]), [])
}

/** Encodes a look-up of the route of a packet to one address, with a mark, or without one (0). */
export function encodeLookup(destination: string, mark: number): Uint8Array[] {
  const bytes = addressBytes(destination)
  const list: Attribute[] = [[RTA.DST, bytes]]
  if (mark !== 0) list.push([RTA.MARK, u32(mark)])
  const head = Buffer.from([addressFamily(familyOf(destination)), bytes.length * 8])
  return body(Buffer.concat([head, Buffer.alloc(RTMSG_BYTES - 2)]), list)
}

export function decodeLookup(data: Buffer): {
  readonly index: number
  readonly source?: string
  readonly mtu?: number
} {
  const found = attributes(data, RTMSG_BYTES)
  const device = found.get(RTA.OIF)
  const source = found.get(RTA.PREFSRC)
  const mtu = readMtu(found.get(RTA.METRICS))
  return {
    index: device === undefined ? 0 : readU32(device),
    ...(source === undefined ? {} : { source: readAddress(source) }),
    ...(mtu === undefined ? {} : { mtu }),
  }
}

/** Returns the name of a device by its number. */
export type DeviceNames = (index: number) => string | undefined

/** Returns undefined for a route that is not ours, of another family, or of a type that Sealane never creates. */
export function decodeRoute(data: Buffer, family: Family, name: DeviceNames): Route | undefined {
  const number = data.readUInt8(7)
  const type = (Object.keys(TYPE_NUMBERS) as Route['type'][]).find((name) => TYPE_NUMBERS[name] === number)
  if (!isRoute(data, family) || data.readUInt8(5) !== ROUTE_PROTOCOL || type === undefined) return undefined
  const found = attributes(data, RTMSG_BYTES)
  const table = found.get(RTA.TABLE)
  const metric = found.get(RTA.PRIORITY)
  const source = found.get(RTA.PREFSRC)
  const mtu = readMtu(found.get(RTA.METRICS))
  const nextHopId = type === 'unicast' ? found.get(RTA.NH_ID) : undefined
  return normalRoute({
    table: table === undefined ? data.readUInt8(4) : readU32(table),
    destination: decodeDestination(data, found),
    type,
    // For IPv6, the kernel lists unreachable routes with the loopback device. If a route has an id, the kernel also
    // lists the hops of that object, for programs that know no ids.
    nextHops: type === 'unicast' && nextHopId === undefined ? decodeNextHops(data, found, name) : [],
    ...(nextHopId === undefined ? {} : { nextHopId: readU32(nextHopId) }),
    ...(metric === undefined ? {} : { metric: readU32(metric) }),
    ...(mtu === undefined ? {} : { mtu }),
    ...(source === undefined ? {} : { source: readAddress(source) }),
  })
}

/** Returns undefined for a route that is ours, of another family, or not in the main table. */
export function decodeMainRoute(data: Buffer, family: Family, name: DeviceNames): MainRoute | undefined {
  if (!isRoute(data, family) || data.readUInt8(5) === ROUTE_PROTOCOL) return undefined
  const found = attributes(data, RTMSG_BYTES)
  const table = found.get(RTA.TABLE)
  if ((table === undefined ? data.readUInt8(4) : readU32(table)) !== RT_TABLE_MAIN) return undefined
  const number = data.readUInt8(7)
  const type = number === RTN_UNICAST ? 'unicast' : number === RTN_BLACKHOLE ? 'blackhole' : 'other'
  // With net.ipv4.nexthop_compat_mode off, the kernel lists the id of a next-hop object without its hops.
  const hasHops = !found.has(RTA.NH_ID) || found.has(RTA.OIF) || found.has(RTA.MULTIPATH)
  const hop = type === 'unicast' && hasHops ? decodeNextHops(data, found, name)[0] : undefined
  const ipv6Gateway = found.has(RTA.VIA) ? '::' : undefined
  const via = hop?.via ?? ipv6Gateway
  return {
    destination: decodeDestination(data, found),
    type,
    ...(hop === undefined ? {} : { device: hop.device }),
    ...(via === undefined ? {} : { via }),
  }
}

/**
 * True for a route of the family that is not a cached exception. A kernel that does not support a family lists the
 * routes of all other families instead.
 */
function isRoute(data: Buffer, family: Family): boolean {
  return data.readUInt8(0) === addressFamily(family) && (readU32(data, 8) & RTM_F_CLONED) === 0
}

function decodeDestination(data: Buffer, found: ReadonlyMap<number, Buffer>): string {
  const address = found.get(RTA.DST)
  const any = data.readUInt8(0) === AF_INET6 ? '::' : '0.0.0.0'
  return `${address === undefined ? any : readAddress(address)}/${data.readUInt8(1)}`
}

export function encodeRule(rule: Rule): Uint8Array[] {
  const list: Attribute[] = [
    [FRA.PRIORITY, u32(rule.priority)],
    [FRA.TABLE, u32(rule.table)],
    [FRA.PROTOCOL, u8(ROUTE_PROTOCOL)],
  ]
  if (rule.inputDevice !== undefined) list.push([FRA.IIFNAME, cString(rule.inputDevice)])
  if (rule.exceptMark !== undefined) list.push([FRA.FWMARK, u32(rule.exceptMark)], [FRA.FWMASK, u32(WHOLE_MARK)])
  if (rule.withoutMark !== undefined) list.push([FRA.FWMARK, u32(0)], [FRA.FWMASK, u32(rule.withoutMark)])
  if (rule.exceptInputDevice !== undefined) list.push([FRA.IIFNAME, cString(rule.exceptInputDevice)])
  const source = rule.source === undefined ? undefined : addressBytes(rule.source)
  if (source !== undefined) list.push([FRA.SRC, source])
  const [to, toLength] = rule.destination?.split('/') ?? []
  if (to !== undefined) list.push([FRA.DST, addressBytes(to)])
  if (rule.protocol !== undefined) list.push([FRA.IP_PROTO, u8(IP_PROTO_NUMBERS[rule.protocol])])
  if (rule.exceptDefault === true) list.push([FRA.SUPPRESS_PREFIXLEN, u32(0)])
  if (rule.sourcePort !== undefined) list.push([FRA.SPORT, portRange(rule.sourcePort)])
  if (rule.destinationPort !== undefined) list.push([FRA.DPORT, portRange(rule.destinationPort)])
  const isInverted = rule.exceptMark !== undefined || rule.exceptInputDevice !== undefined
  const flags = isInverted ? FIB_RULE_INVERT : 0
  const length = source === undefined ? 0 : source.length * 8
  const action = rule.action === undefined ? FR_ACT_TO_TBL : FR_ACT_BLACKHOLE
  const lengths = [Number(toLength ?? 0), length]
  const head = Buffer.from([addressFamily(rule.family ?? 4), ...lengths, 0, tableByte(rule.table), 0, 0, action])
  return body(Buffer.concat([head, u32(flags)]), list)
}

/** linux/fib_rules.h fib_rule_port_range: the first and the last port, in host order. */
function portRange(port: number): Buffer {
  return Buffer.concat([u16(port), u16(port)])
}

export function encodeRuleDump(family: Family): Uint8Array[] {
  return body(Buffer.concat([u8(addressFamily(family)), Buffer.alloc(RULE_BYTES - 1)]), [])
}

/** Returns undefined for a rule that is not ours, or of another family. */
export function decodeRule(data: Buffer, family: Family): Rule | undefined {
  const found = attributes(data, RULE_BYTES)
  if (data.readUInt8(0) !== addressFamily(family)) return undefined
  if (found.get(FRA.PROTOCOL)?.readUInt8(0) !== ROUTE_PROTOCOL) return undefined
  const table = found.get(FRA.TABLE)
  const priority = found.get(FRA.PRIORITY)
  const device = found.get(FRA.IIFNAME)
  const isInverted = (readU32(data, 8) & FIB_RULE_INVERT) !== 0
  const mark = isInverted ? found.get(FRA.FWMARK) : undefined
  // The kernel lists no mark of 0, only the mask.
  const without = isInverted || found.has(FRA.FWMARK) ? undefined : found.get(FRA.FWMASK)
  const destination = found.get(FRA.DST)
  const source = found.get(FRA.SRC)
  const suppressed = found.get(FRA.SUPPRESS_PREFIXLEN)
  const exceptDefault = suppressed !== undefined && readU32(suppressed) === 0
  return {
    ...(family === 6 ? { family } : {}),
    priority: priority === undefined ? 0 : readU32(priority),
    table: table === undefined ? data.readUInt8(4) : readU32(table),
    ...(data.readUInt8(7) === FR_ACT_BLACKHOLE ? { action: 'blackhole' } : {}),
    ...(device === undefined ? {} : { [isInverted ? 'exceptInputDevice' : 'inputDevice']: readCString(device) }),
    ...(source === undefined ? {} : { source: readAddress(source) }),
    ...(destination === undefined ? {} : { destination: `${readAddress(destination)}/${data.readUInt8(1)}` }),
    ...(without === undefined ? {} : { withoutMark: readU32(without) }),
    ...(mark === undefined ? {} : { exceptMark: readU32(mark) }),
    ...(exceptDefault ? { exceptDefault } : {}),
    ...rulePorts(found),
  }
}

/**
 * Leaves out a protocol or a range that Sealane never writes. The rule then differs from the desired one and is
 * replaced.
 */
function rulePorts(found: ReadonlyMap<number, Buffer>): Pick<Rule, 'protocol' | 'sourcePort' | 'destinationPort'> {
  const number = found.get(FRA.IP_PROTO)?.readUInt8(0)
  const protocol = (['tcp', 'udp'] as const).find((name) => IP_PROTO_NUMBERS[name] === number)
  const [source, destination] = [found.get(FRA.SPORT), found.get(FRA.DPORT)]
  return {
    ...(protocol === undefined ? {} : { protocol }),
    ...(source === undefined ? {} : { sourcePort: readU16(source) }),
    ...(destination === undefined ? {} : { destinationPort: readU16(destination) }),
  }
}

function routeKey(route: Route): Attribute[] {
  const [address = ''] = route.destination.split('/')
  const list: Attribute[] = [[RTA.TABLE, u32(route.table)]]
  if (!route.destination.endsWith('/0')) list.push([RTA.DST, addressBytes(address)])
  const metric = routeMetric(route)
  if (metric !== 0) list.push([RTA.PRIORITY, u32(metric)])
  return list
}

function rtmsg(route: Route, scope: number, flags: number): Buffer {
  const length = Number(route.destination.split('/')[1])
  const family = addressFamily(familyOf(route.destination))
  return Buffer.concat([
    Buffer.from([family, length, 0, 0, tableByte(route.table), ROUTE_PROTOCOL, scope, TYPE_NUMBERS[route.type]]),
    u32(flags),
  ])
}

/** Returns the value for the old one-byte field. Larger numbers are only in the attribute. */
function tableByte(table: number): number {
  return table < 256 ? table : RT_TABLE_COMPAT
}

function encodeNextHop(hop: NextHop, index: number): Buffer {
  const tail =
    hop.via === undefined
      ? Buffer.alloc(0)
      : Buffer.concat(body(Buffer.alloc(0), [[RTA.GATEWAY, addressBytes(hop.via)]]))
  const flags = hop.onlink === true ? RTNH_F_ONLINK : 0
  const head = Buffer.concat([
    u16(NEXT_HOP_BYTES + tail.length),
    Buffer.from([flags, (hop.weight ?? 1) - 1]),
    u32(index),
  ])
  return Buffer.concat([head, tail])
}

function decodeNextHops(data: Buffer, found: ReadonlyMap<number, Buffer>, name: DeviceNames): NextHop[] {
  const several = found.get(RTA.MULTIPATH)
  if (several === undefined) {
    const device = found.get(RTA.OIF)
    return [nextHop(name, device === undefined ? 0 : readU32(device), found.get(RTA.GATEWAY), readU32(data, 8), 1)]
  }
  const hops: NextHop[] = []
  for (let rest = several; rest.length >= NEXT_HOP_BYTES;) {
    const length = readU16(rest)
    if (length < NEXT_HOP_BYTES || length > rest.length) break
    const inner = attributes(rest.subarray(0, length), NEXT_HOP_BYTES)
    hops.push(nextHop(name, readU32(rest, 4), inner.get(RTA.GATEWAY), rest.readUInt8(2), rest.readUInt8(3) + 1))
    rest = rest.subarray((length + 3) & ~3)
  }
  return hops
}

function nextHop(
  name: DeviceNames,
  index: number,
  gateway: Buffer | undefined,
  flags: number,
  weight: number,
): NextHop {
  return {
    device: name(index) ?? `if${index}`,
    ...(gateway === undefined ? {} : { via: readAddress(gateway) }),
    ...((flags & RTNH_F_ONLINK) === 0 ? {} : { onlink: true }),
    ...(weight === 1 ? {} : { weight }),
  }
}

function readMtu(metrics: Buffer | undefined): number | undefined {
  if (metrics === undefined) return undefined
  const mtu = attributes(metrics, 0).get(RTAX_MTU)
  // 0 means the same as no metric.
  return mtu === undefined ? undefined : readU32(mtu) || undefined
}
