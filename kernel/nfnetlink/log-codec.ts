/** Encodes and decodes messages of nfnetlink_log (linux/netfilter/nfnetlink_log.h). Pure. */
import { formatAddress } from '../../model/addresses/addresses.ts'
import { attributes, body, readCString } from '../route/route.ts'
import type { LoggedPacket } from './packet-log.ts'

const SUBSYSTEM = 4 << 8
/** NFULNL_MSG_PACKET */
export const PACKET_MESSAGE = SUBSYSTEM
/** NFULNL_MSG_CONFIG */
export const CONFIG_MESSAGE = SUBSYSTEM | 1

const NFGENMSG_BYTES = 4
const NFULA_CFG_CMD = 1
const NFULA_CFG_MODE = 2
const NFULA_CFG_QTHRESH = 5
const BIND = 1
const COPY_PACKET = 2

const NFULA_TIMESTAMP = 3
const NFULA_PAYLOAD = 9
const NFULA_PREFIX = 10

/** Enough for the headers of IPv6 and of the protocol; the content of a packet is not read. */
export const COPIED_BYTES = 64
/** Enough for those of an ICMP error and of the packet that it is about. */
export const COPIED_BYTES_OF_ERROR = 128

/** Requests the packets of a group, each as soon as it is logged, and of each what the rule says: 128 bytes at most. */
export function encodeFollowRequest(group: number): Uint8Array[] {
  const mode = Buffer.alloc(6)
  mode.writeUInt32BE(COPIED_BYTES_OF_ERROR)
  mode.writeUInt8(COPY_PACKET, 4)
  const threshold = Buffer.alloc(4)
  threshold.writeUInt32BE(1)
  return body(Buffer.from([0, 0, group >> 8, group & 0xff]), [
    [NFULA_CFG_CMD, Buffer.from([BIND])],
    [NFULA_CFG_MODE, mode],
    [NFULA_CFG_QTHRESH, threshold],
  ])
}

/** The packet of a message to the group; undefined for a message that has none that is understood. */
export function decodeLogged(data: Buffer, group: number): LoggedPacket | undefined {
  if (data.length < NFGENMSG_BYTES || data.readUInt16BE(2) !== group) return undefined
  const found = attributes(data, NFGENMSG_BYTES)
  const payload = found.get(NFULA_PAYLOAD)
  const prefix = found.get(NFULA_PREFIX)
  const headers = payload === undefined ? undefined : readHeaders(payload)
  if (headers === undefined) return undefined
  const atMs = readTime(found.get(NFULA_TIMESTAMP))
  return {
    prefix: prefix === undefined ? '' : readCString(prefix),
    ...headers,
    ...(atMs === undefined ? {} : { atMs }),
  }
}

/** Seconds and microseconds, each 64 bits. */
function readTime(data: Buffer | undefined): number | undefined {
  if (data?.length !== 16) return undefined
  return Number(data.readBigUInt64BE(0)) * 1000 + Number(data.readBigUInt64BE(8)) / 1000
}

type Headers = Omit<LoggedPacket, 'prefix' | 'atMs'>

/** Reads the headers of an IP packet, which may be cut off anywhere. Undefined if its addresses are not complete. */
export function readHeaders(packet: Buffer): Headers | undefined {
  const version = packet.length === 0 ? 0 : packet.readUInt8(0) >> 4
  if (version === 4) return readIpv4(packet)
  return version === 6 ? readIpv6(packet) : undefined
}

const NAMES: Readonly<Record<number, string>> = { 1: 'icmp', 6: 'tcp', 17: 'udp', 58: 'icmpv6', 132: 'sctp' }
const WITH_PORTS: ReadonlySet<number> = new Set([6, 17, 132])

function readIpv4(packet: Buffer): Headers | undefined {
  const length = (packet.readUInt8(0) & 0x0f) * 4
  if (packet.length < 20 || length < 20) return undefined
  const isLater = (packet.readUInt16BE(6) & 0x1fff) !== 0
  const ends = { source: ipv4Text(packet, 12), destination: ipv4Text(packet, 16) }
  const protocol = packet.readUInt8(9)
  const about = protocol === ICMP && !isLater ? readError(packet, length, isIcmpError) : {}
  return { ...ends, ...transport(packet, protocol, isLater ? Infinity : length), ...about }
}

const HOP_BY_HOP = 0
const ROUTING = 43
const FRAGMENT = 44
const DESTINATION = 60

function readIpv6(packet: Buffer): Headers | undefined {
  if (packet.length < 40) return undefined
  const ends = { source: ipv6Text(packet, 8), destination: ipv6Text(packet, 24) }
  let [protocol, at] = [packet.readUInt8(6), 40]
  // RFC 8200 section 4.1. Each header is at least 8 octets long, so the end of the copied part ends the search.
  while ([HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION].includes(protocol) && packet.length >= at + 8) {
    const isFragment = protocol === FRAGMENT
    const isLater = isFragment && packet.readUInt16BE(at + 2) >> 3 !== 0
    protocol = packet.readUInt8(at)
    if (isLater) return { ...ends, ...transport(packet, protocol, Infinity) }
    at += isFragment ? 8 : 8 * (packet.readUInt8(at + 1) + 1)
  }
  const about = protocol === ICMPV6 ? readError(packet, at, isIcmpv6Error) : {}
  return { ...ends, ...transport(packet, protocol, at), ...about }
}

const ICMP = 1
const ICMPV6 = 58
/** Unreachable, redirect, time exceeded, and a bad field (RFC 792). */
const isIcmpError = (type: number): boolean => [3, 5, 11, 12].includes(type)
/** RFC 4443 section 2.1 */
const isIcmpv6Error = (type: number): boolean => type < 128

/** An error has 8 octets of its own, and then the packet that it is about. */
function readError(packet: Buffer, at: number, isError: (type: number) => boolean): Pick<Headers, 'about'> {
  if (packet.length < at + 8 || !isError(packet.readUInt8(at))) return {}
  const inner = readHeaders(packet.subarray(at + 8))
  if (inner === undefined) return {}
  const { about: _, ...about } = inner
  return { about }
}

/** `at`: where the header of the protocol begins. */
function transport(packet: Buffer, number: number, at: number): Pick<Headers, 'protocol' | 'port' | 'sourcePort'> {
  const protocol = NAMES[number] ?? String(number)
  return WITH_PORTS.has(number) && packet.length >= at + 4
    ? { protocol, sourcePort: packet.readUInt16BE(at), port: packet.readUInt16BE(at + 2) }
    : { protocol }
}

function ipv4Text(packet: Buffer, at: number): string {
  return packet.subarray(at, at + 4).join('.')
}

function ipv6Text(packet: Buffer, at: number): string {
  return formatAddress({ family: 6, value: BigInt(`0x${packet.toString('hex', at, at + 16)}`) })
}
