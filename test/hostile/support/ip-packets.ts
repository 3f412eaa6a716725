/** IPv4 and IPv6 packets that no honest machine sends: any protocol, header, fragment and inner packet. */
import { checksum, groups } from './raw-packets.ts'

/** The attacks of a test send all their packets with this TTL or hop limit, so that a counter finds them anywhere. */
export const MARK_TTL = 201

export const PROTOCOL = {
  hopByHop: 0,
  icmp: 1,
  ipip: 4,
  tcp: 6,
  udp: 17,
  ipv6: 41,
  routing: 43,
  fragment: 44,
  gre: 47,
  esp: 50,
  icmp6: 58,
  none: 59,
  destination: 60,
  sctp: 132,
  udpLite: 136,
  experiment: 253,
} as const

/** RFC 9293 section 3.1. */
export const FLAG = { fin: 0x01, syn: 0x02, rst: 0x04, push: 0x08, ack: 0x10, urgent: 0x20 } as const

export interface Ends {
  readonly from: string
  readonly to: string
}

export interface Part {
  /** In octets; a multiple of eight. */
  readonly offset: number
  readonly more: boolean
  readonly id: number
}

export interface PacketInit extends Ends {
  readonly protocol: number
  readonly payload: Buffer
  readonly part?: Part
  /** IPv4 options; a multiple of four octets. */
  readonly options?: Buffer
  readonly ttl?: number
}

/** The packet of the family of its addresses. An IPv6 packet that is a part has a fragment header. */
export function packet(init: PacketInit): Buffer {
  return init.to.includes(':') ? packet6(init) : packet4(init)
}

function packet4({ from, to, protocol, payload, part, options = Buffer.alloc(0), ttl = MARK_TTL }: PacketInit): Buffer {
  const header = Buffer.concat([Buffer.alloc(20), options])
  header.set([0x40 + header.length / 4, 0])
  header.writeUInt16BE(header.length + payload.length, 2)
  if (part !== undefined) {
    header.writeUInt16BE(part.id, 4)
    header.writeUInt16BE((part.more ? 0x2000 : 0) + part.offset / 8, 6)
  }
  header.set([ttl, protocol], 8)
  header.set(bytesOf(from), 12)
  header.set(bytesOf(to), 16)
  header.writeUInt16BE(checksum(header), 10)
  return Buffer.concat([header, payload])
}

function packet6({ from, to, protocol, payload, part, ttl = MARK_TTL }: PacketInit): Buffer {
  const extension = Buffer.alloc(part === undefined ? 0 : 8)
  if (part !== undefined) {
    extension.set([protocol, 0])
    extension.writeUInt16BE(part.offset + (part.more ? 1 : 0), 2)
    extension.writeUInt32BE(part.id, 4)
  }
  const header = Buffer.alloc(40)
  header[0] = 0x60
  header.writeUInt16BE(extension.length + payload.length, 4)
  header.set([part === undefined ? protocol : PROTOCOL.fragment, ttl], 6)
  header.set(bytesOf(from), 8)
  header.set(bytesOf(to), 24)
  return Buffer.concat([header, extension, payload])
}

/** An IPv6 extension header of the usual form, in front of the rest. `data` has 6 octets, or 8 more each. */
export function extension(next: number, rest: Buffer, data = Buffer.from([1, 4, 0, 0, 0, 0])): Buffer {
  return Buffer.concat([Buffer.from([next, (data.length + 2) / 8 - 1]), data, rest])
}

export interface Ports extends Ends {
  readonly source: number
  readonly port: number
}

export function udp({ source, port, ...ends }: Ports, data = Buffer.from('attack')): Buffer {
  const bytes = Buffer.concat([Buffer.alloc(8), data])
  bytes.writeUInt16BE(source, 0)
  bytes.writeUInt16BE(port, 2)
  bytes.writeUInt16BE(bytes.length, 4)
  return summed(bytes, 6, PROTOCOL.udp, ends)
}

export function tcp({ source, port, ...ends }: Ports, flags: number, data = Buffer.alloc(0)): Buffer {
  const bytes = Buffer.concat([Buffer.alloc(20), data])
  bytes.writeUInt16BE(source, 0)
  bytes.writeUInt16BE(port, 2)
  bytes.writeUInt32BE(5000, 4)
  bytes.writeUInt32BE((flags & FLAG.ack) === 0 ? 0 : 7000, 8)
  bytes.set([0x50, flags, 0xff, 0xff], 12)
  return summed(bytes, 16, PROTOCOL.tcp, ends)
}

export function icmp(type: number, code: number, rest: Buffer): Buffer {
  const bytes = Buffer.concat([Buffer.from([type, code, 0, 0]), rest])
  bytes.writeUInt16BE(checksum(bytes), 2)
  return bytes
}

export function icmp6(type: number, code: number, rest: Buffer, ends: Ends): Buffer {
  return summed(Buffer.concat([Buffer.from([type, code, 0, 0]), rest]), 2, PROTOCOL.icmp6, ends)
}

/** Four octets that mean nothing, and the beginning of the packet that an ICMP error is about. */
export function about(inner: Buffer): Buffer {
  return Buffer.concat([Buffer.alloc(4), inner])
}

/** Sets the checksum that also covers the addresses (RFC 8200 section 8.1). */
function summed(bytes: Buffer, at: number, protocol: number, { from, to }: Ends): Buffer {
  const tail = Buffer.from([0, protocol, bytes.length >> 8, bytes.length & 0xff])
  bytes.writeUInt16BE(0, at)
  bytes.writeUInt16BE(checksum(Buffer.concat([bytesOf(from), bytesOf(to), tail, bytes])), at)
  return bytes
}

function bytesOf(address: string): Buffer {
  return address.includes(':') ? groups(address) : Buffer.from(address.split('.').map(Number))
}
