/**
 * Neighbours and forwarding entries: struct ndmsg, linux/neighbour.h. A forwarding entry is a neighbour of AF_BRIDGE.
 */
import { familyOf, type Family } from '../../model/addresses/ip.ts'
import {
  addressBytes,
  addressFamily,
  AF_BRIDGE,
  attributes,
  body,
  macBytes,
  readAddress,
  readMac,
  readU16,
  readU32,
  u16,
  u32,
} from './rtnetlink-codec.ts'
import type { ForwardingEntry, Neighbour } from './route-table.ts'

export const RTM_NEWNEIGH = 28
export const RTM_DELNEIGH = 29
export const RTM_GETNEIGH = 30

const NDMSG_BYTES = 12
const NDA = { DST: 1, LLADDR: 2 } as const
const NUD_PERMANENT = 0x80
const NTF_SELF = 2

export function encodeNeighbour(neighbour: Neighbour, index: number): Uint8Array[] {
  return body(ndmsg(addressFamily(familyOf(neighbour.address)), index, 0), [
    [NDA.DST, addressBytes(neighbour.address)],
    [NDA.LLADDR, macBytes(neighbour.mac)],
  ])
}

export function encodeForwardingEntry(entry: ForwardingEntry, index: number): Uint8Array[] {
  return body(ndmsg(AF_BRIDGE, index, NTF_SELF), [
    [NDA.LLADDR, macBytes(entry.mac)],
    [NDA.DST, addressBytes(entry.destination)],
  ])
}

/** Neighbours of a family, or forwarding entries. */
export type NeighbourKind = Family | 'forwarding'

export function encodeNeighbourDump(kind: NeighbourKind): Uint8Array[] {
  const head = Buffer.alloc(NDMSG_BYTES)
  head.writeUInt8(kindNumber(kind), 0)
  return body(head, [])
}

/** Address and MAC of a permanent entry of that kind and device; undefined for all others. */
export function decodeNeighbour(
  data: Buffer,
  kind: NeighbourKind,
  index: number,
): { readonly mac: string; readonly address: string } | undefined {
  if (data.readUInt8(0) !== kindNumber(kind) || readU32(data, 4) !== index) return undefined
  if ((readU16(data, 8) & NUD_PERMANENT) === 0) return undefined
  const found = attributes(data, NDMSG_BYTES)
  const address = found.get(NDA.DST)
  const mac = readMac(found.get(NDA.LLADDR))
  return address === undefined || mac === '' ? undefined : { mac, address: readAddress(address) }
}

/** Number of the device that an entry is about. */
export function deviceOf(data: Buffer): number {
  return data.length < NDMSG_BYTES ? 0 : readU32(data, 4)
}

function kindNumber(kind: NeighbourKind): number {
  return kind === 'forwarding' ? AF_BRIDGE : addressFamily(kind)
}

function ndmsg(family: number, index: number, flags: number): Buffer {
  return Buffer.concat([Buffer.from([family, 0, 0, 0]), u32(index), u16(NUD_PERMANENT), Buffer.from([flags, 0])])
}
