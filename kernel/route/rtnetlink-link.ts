/**
 * Encodes and decodes links and addresses as rtnetlink messages: struct ifinfomsg and ifaddrmsg, linux/if_link.h and
 * if_addr.h.
 */
import { type Family, familyOf } from '../../model/addresses/addresses.ts'
import { KernelError, isNotFound } from '../kernel.ts'
import { checkDeviceName } from './check-route.ts'
import type { RtnetlinkSocket } from './netlink-socket.ts'
import type {
  ForwardingEntry,
  InterfaceAddress,
  Link,
  Neighbour,
  NewAddress,
  NewLink,
  VxlanLink,
} from './route-table.ts'
import {
  AF_BRIDGE,
  AF_INET,
  AF_INET6,
  type Attribute,
  addressBytes,
  addressFamily,
  attributes,
  body,
  cString,
  macBytes,
  readAddress,
  readCString,
  readMac,
  readU16,
  readU32,
  u16,
  u16be,
  u32,
  u8,
} from './rtnetlink-codec.ts'

export const RTM_NEWLINK = 16
export const RTM_DELLINK = 17
export const RTM_GETLINK = 18
export const RTM_NEWADDR = 20
export const RTM_DELADDR = 21
export const RTM_GETADDR = 22

const IFF_UP = 1
const IFINFO_BYTES = 16
const IFADDR_BYTES = 8

const IFLA = { ADDRESS: 1, IFNAME: 3, MTU: 4, LINKINFO: 18, EXT_MASK: 29 } as const
const INFO = { KIND: 1, DATA: 2 } as const
const VXLAN = { ID: 1, LOCAL: 4, LEARNING: 7, PORT: 15 } as const
const IFA = { ADDRESS: 1, LOCAL: 2 } as const
/** Makes an address usable at once. Otherwise the kernel first runs duplicate address detection. */
const IFA_F_NODAD = 2
/** linux/rtnetlink.h. All other addresses have global scope. */
const RT_SCOPE_HOST = 254
const IFA_F_OPTIMISTIC = 4
const IFA_F_TENTATIVE = 0x40
/** Statistics would make up most of every answer. */
const RTEXT_FILTER_SKIP_STATS = 1 << 3

export function encodeNewLink(link: NewLink): Uint8Array[] {
  const info: Attribute[] = [[INFO.KIND, Buffer.from(link.kind)]]
  const list: Attribute[] = [
    [IFLA.IFNAME, cString(link.name)],
    [IFLA.MTU, u32(link.mtu)],
  ]
  if (link.kind === 'vxlan') {
    list.push([IFLA.ADDRESS, macBytes(link.mac)])
    info.push([
      INFO.DATA,
      [
        [VXLAN.ID, u32(link.vni)],
        [VXLAN.LOCAL, addressBytes(link.local)],
        [VXLAN.LEARNING, u8(0)],
        [VXLAN.PORT, u16be(link.port)],
      ],
    ])
  }
  return body(ifinfo(0, 0, 0), [...list, [IFLA.LINKINFO, info]])
}

export function encodeLinkChange(
  index: number,
  change: { readonly up?: boolean; readonly mtu?: number },
): Uint8Array[] {
  const head = change.up === undefined ? ifinfo(index, 0, 0) : ifinfo(index, change.up ? IFF_UP : 0, IFF_UP)
  return body(head, change.mtu === undefined ? [] : [[IFLA.MTU, u32(change.mtu)]])
}

/** For deletion, and for the listing (index 0). */
export function encodeLinkIndex(index: number): Uint8Array[] {
  return body(ifinfo(index, 0, 0), index === 0 ? [[IFLA.EXT_MASK, u32(RTEXT_FILTER_SKIP_STATS)]] : [])
}

export function encodeLinkName(name: string): Uint8Array[] {
  return body(ifinfo(0, 0, 0), [
    [IFLA.IFNAME, cString(name)],
    [IFLA.EXT_MASK, u32(RTEXT_FILTER_SKIP_STATS)],
  ])
}

export function decodeLink(data: Buffer): Link | VxlanLink {
  const found = attributes(data, IFINFO_BYTES)
  const info = found.get(IFLA.LINKINFO)
  const parts = info === undefined ? new Map<number, Buffer>() : attributes(info, 0)
  const mtu = found.get(IFLA.MTU)
  const link: Link = {
    name: readCString(found.get(IFLA.IFNAME) ?? Buffer.alloc(0)),
    index: readU32(data, 4),
    kind: readCString(parts.get(INFO.KIND) ?? Buffer.alloc(0)),
    mtu: mtu === undefined ? 0 : readU32(mtu),
    up: (readU32(data, 8) & IFF_UP) !== 0,
    mac: readMac(found.get(IFLA.ADDRESS)),
  }
  const details = parts.get(INFO.DATA)
  return link.kind === 'vxlan' && details !== undefined ? decodeVxlan(link, details) : link
}

function decodeVxlan(link: Link, details: Buffer): VxlanLink {
  const found = attributes(details, 0)
  const id = found.get(VXLAN.ID)
  const local = found.get(VXLAN.LOCAL)
  return {
    ...link,
    kind: 'vxlan',
    vni: id === undefined ? 0 : readU32(id),
    port: found.get(VXLAN.PORT)?.readUInt16BE(0) ?? 0,
    local: local === undefined ? '' : readAddress(local),
  }
}

/** `address` is address/length; the device is named by index. */
export function encodeAddress(address: string, index: number, scope?: NewAddress['scope']): Uint8Array[] {
  const [host = '', length] = address.split('/')
  const bytes = addressBytes(host)
  const [family, flags] = bytes.length === 4 ? [AF_INET, 0] : [AF_INET6, IFA_F_NODAD]
  const head = Buffer.concat([
    Buffer.from([family, Number(length), flags, scope === 'host' ? RT_SCOPE_HOST : 0]),
    u32(index),
  ])
  return body(head, [
    [IFA.LOCAL, bytes],
    [IFA.ADDRESS, bytes],
  ])
}

export function encodeAddressDump(): Uint8Array[] {
  return body(Buffer.alloc(IFADDR_BYTES), [])
}

/**
 * Returns undefined for an address of a device that is not in `names`, because it was added after the links were
 * listed. Also returns undefined for a tentative address (RFC 4862 section 2): duplicate address detection is running
 * or the network has no carrier, and until then the kernel refuses the address as the source of a route.
 */
export function decodeAddress(data: Buffer, names: ReadonlyMap<number, string>): InterfaceAddress | undefined {
  const found = attributes(data, IFADDR_BYTES)
  // On a point-to-point device, ADDRESS is the address of the far end.
  const bytes = found.get(IFA.LOCAL) ?? found.get(IFA.ADDRESS)
  const device = names.get(readU32(data, 4))
  const flags = data.readUInt8(2) & (IFA_F_TENTATIVE | IFA_F_OPTIMISTIC)
  if (bytes === undefined || device === undefined || flags === IFA_F_TENTATIVE) return undefined
  return { device, address: `${readAddress(bytes)}/${data.readUInt8(1)}` }
}

function ifinfo(index: number, flags: number, change: number): Buffer {
  return Buffer.concat([Buffer.alloc(4), u32(index), u32(flags), u32(change)])
}

// Neighbours and forwarding entries: struct ndmsg, linux/neighbour.h. A forwarding entry is a neighbour of AF_BRIDGE.

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

/** Returns the address and MAC of a permanent entry of the kind and device. Undefined for all others. */
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

/** Returns the device number of an entry. */
export function deviceOf(data: Buffer): number {
  return data.length < NDMSG_BYTES ? 0 : readU32(data, 4)
}

function kindNumber(kind: NeighbourKind): number {
  return kind === 'forwarding' ? AF_BRIDGE : addressFamily(kind)
}

function ndmsg(family: number, index: number, flags: number): Buffer {
  return Buffer.concat([Buffer.from([family, 0, 0, 0]), u32(index), u16(NUD_PERMANENT), Buffer.from([flags, 0])])
}

// Looks up devices by name and number over a socket, for the drivers.

/** Returns all devices of this network namespace. Throws KernelError. */
export async function allDevices(
  socket: RtnetlinkSocket,
  signal: AbortSignal | undefined,
): Promise<readonly (Link | VxlanLink)[]> {
  const request = { type: RTM_GETLINK, body: encodeLinkIndex(0), operation: 'ip link show', signal }
  return (await socket.dump(request)).map((message) => decodeLink(message.data))
}

/** Returns the names of devices by number. Throws KernelError. */
export async function deviceNames(
  socket: RtnetlinkSocket,
  signal: AbortSignal | undefined,
): Promise<ReadonlyMap<number, string>> {
  return new Map((await allDevices(socket, signal)).map((item) => [item.index, item.name]))
}

/** Returns the device with the name. Throws KernelError: ENODEV if there is none, EINVAL if the name is invalid. */
export async function needDevice(
  socket: RtnetlinkSocket,
  name: string,
  operation: string,
  signal: AbortSignal | undefined,
): Promise<Link | VxlanLink> {
  checkDeviceName(name, operation)
  try {
    const [answer] = await socket.request({ type: RTM_GETLINK, body: encodeLinkName(name), operation, signal })
    if (answer !== undefined) return decodeLink(answer.data)
  } catch (error) {
    if (!isNotFound(error)) throw error
  }
  throw new KernelError('ENODEV', operation, `no device ${name}`)
}
