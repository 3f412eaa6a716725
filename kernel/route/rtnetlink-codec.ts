/**
 * Encodes and decodes rtnetlink messages: attributes, addresses and fixed headers, in host byte order.
 * linux/rtnetlink.h.
 */
import { parseAttributes } from 'netlink'
import { addressBits, formatAddress, parseAddress, type Family } from '../../model/addresses/addresses.ts'

export type AttributeValue = Uint8Array | readonly Attribute[]
export type Attribute = readonly [type: number, value: AttributeValue]

export const AF_INET = 2
export const AF_BRIDGE = 7
export const AF_INET6 = 10

export function addressFamily(family: Family): number {
  return family === 4 ? AF_INET : AF_INET6
}

/** linux/netlink.h. Newer message types require it on nested attributes; older ones never had it. */
const NLA_F_NESTED = 0x8000
const ATTRIBUTE_HEAD_BYTES = 4
const MAX_ATTRIBUTE_BYTES = 0xffff

/** Returns the type of an attribute that is marked as nested. */
export function nested(type: number): number {
  return type | NLA_F_NESTED
}

/** Returns a message body: a fixed header followed by attributes. */
export function body(head: Uint8Array, attributes: readonly Attribute[]): Uint8Array[] {
  return [head, ...encodeAttributes(attributes)]
}

/** Each attribute begins at a multiple of four bytes. */
function encodeAttributes(attributes: readonly Attribute[]): Uint8Array[] {
  const parts: Uint8Array[] = []
  let padding = 0
  for (const [type, value] of attributes) {
    if (padding > 0) parts.push(Buffer.alloc(padding))
    const content = value instanceof Uint8Array ? value : Buffer.concat(encodeAttributes(value))
    const length = ATTRIBUTE_HEAD_BYTES + content.length
    if (length > MAX_ATTRIBUTE_BYTES) throw new RangeError(`attribute ${type}: ${length} bytes: expected at most 65535`)
    parts.push(u16(length), u16(type), content)
    padding = -length & 3
  }
  return parts
}

/**
 * Returns the attributes after the first `skip` bytes, by type. Nested attributes stay bytes: parse them with skip 0.
 */
export function attributes(data: Buffer, skip: number): ReadonlyMap<number, Buffer> {
  const found = new Map<number, Buffer>()
  parseAttributes(data.subarray(skip), (item) => found.set(item.type, Buffer.from(item.data as Uint8Array)))
  return found
}

const LITTLE = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1

export function u8(value: number): Buffer {
  return Buffer.from([value])
}

export function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  if (LITTLE) bytes.writeUInt32LE(value >>> 0)
  else bytes.writeUInt32BE(value >>> 0)
  return bytes
}

/** Of a number below 2^32. */
export function u64(value: number): Buffer {
  return Buffer.concat(LITTLE ? [u32(value), u32(0)] : [u32(0), u32(value)])
}

export function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2)
  if (LITTLE) bytes.writeUInt16LE(value)
  else bytes.writeUInt16BE(value)
  return bytes
}

/** In network byte order. */
export function u16be(value: number): Buffer {
  const bytes = Buffer.alloc(2)
  bytes.writeUInt16BE(value)
  return bytes
}

export function readU16(data: Buffer, offset = 0): number {
  return LITTLE ? data.readUInt16LE(offset) : data.readUInt16BE(offset)
}

export function readU32(data: Buffer, offset = 0): number {
  return LITTLE ? data.readUInt32LE(offset) : data.readUInt32BE(offset)
}

export function readU64(data: Buffer, offset = 0): bigint {
  return LITTLE ? data.readBigUInt64LE(offset) : data.readBigUInt64BE(offset)
}

/** Includes the terminating zero. */
export function cString(text: string): Buffer {
  return Buffer.from(`${text}\0`, 'utf8')
}

export function readCString(data: Buffer): string {
  const end = data.indexOf(0)
  return data.toString('utf8', 0, end < 0 ? data.length : end)
}

export function addressBytes(text: string): Buffer {
  const { family, value } = parseAddress(text)
  return Buffer.from(value.toString(16).padStart(addressBits(family) / 4, '0'), 'hex')
}

export function readAddress(data: Buffer): string {
  const family: Family = data.length === 4 ? 4 : 6
  return formatAddress({ family, value: BigInt(`0x${data.toString('hex')}`) })
}

export function macBytes(text: string): Buffer {
  return Buffer.from(text.replaceAll(':', ''), 'hex')
}

/** Returns '' for a link without a hardware address. */
export function readMac(data: Buffer | undefined): string {
  if (data?.length !== 6 || data.every((byte) => byte === 0)) return ''
  return [...data].map((byte) => byte.toString(16).padStart(2, '0')).join(':')
}
