/** Bytes of ctnetlink: linux/netfilter/nfnetlink_conntrack.h. What the kernel sends is in network byte order. */
import { type Attribute, AF_INET, body, readU16 } from '../route/rtnetlink-codec.ts'
import type { TrackedConnection } from './connection-table.ts'

const SUBSYSTEM = 1 << 8
/** IPCTNL_MSG_CT_NEW: an entry of a listing. */
export const ENTRY_MESSAGE = SUBSYSTEM
/** IPCTNL_MSG_CT_GET */
export const LIST_MESSAGE = SUBSYSTEM | 1

const NFGENMSG_BYTES = 4
const ATTRIBUTE_HEAD_BYTES = 4
/** The upper bits of a type are flags. */
const TYPE_MASK = 0x3fff

const CTA_TUPLE_ORIG = 1
const CTA_TUPLE_REPLY = 2
const CTA_STATUS = 3
const CTA_PROTOINFO = 4
const CTA_TUPLE_IP = 1
const CTA_TUPLE_PROTO = 2
const CTA_IP_V4_SRC = 1
const CTA_PROTO_NUM = 1
const CTA_PROTOINFO_TCP = 1
const CTA_PROTOINFO_TCP_STATE = 1

const IPS_ASSURED = 1 << 2
const TCP_ESTABLISHED = 3
const TCP = 6
const UDP = 17

/** A listing of what is IPv4 and assured. Older kernels do not look at the second, and list all of IPv4. */
export function encodeListRequest(): Uint8Array[] {
  const status = Buffer.alloc(4)
  status.writeUInt32BE(IPS_ASSURED)
  const attributes: readonly Attribute[] = [[CTA_STATUS, status]]
  return body(Buffer.from([AF_INET, 0, 0, 0]), attributes)
}

/** Undefined for an entry that is no connection that is open. */
export function decodeConnection(data: Buffer): TrackedConnection | undefined {
  const entry = { data, from: NFGENMSG_BYTES, to: data.length }
  if (data.length < NFGENMSG_BYTES || data.readUInt8(0) !== AF_INET) return undefined
  if (((u32(find(entry, CTA_STATUS)) ?? 0) & IPS_ASSURED) === 0) return undefined
  const origin = find(entry, CTA_TUPLE_ORIG)
  const protocol = u8(find(find(origin, CTA_TUPLE_PROTO), CTA_PROTO_NUM))
  if (protocol !== UDP && !(protocol === TCP && tcpState(entry) === TCP_ESTABLISHED)) return undefined
  const client = u32(find(find(origin, CTA_TUPLE_IP), CTA_IP_V4_SRC))
  const server = u32(find(find(find(entry, CTA_TUPLE_REPLY), CTA_TUPLE_IP), CTA_IP_V4_SRC))
  return client === undefined || server === undefined ? undefined : { client, server }
}

function tcpState(entry: Span): number | undefined {
  return u8(find(find(find(entry, CTA_PROTOINFO), CTA_PROTOINFO_TCP), CTA_PROTOINFO_TCP_STATE))
}

/** Attributes, or the content of one. */
interface Span {
  readonly data: Buffer
  readonly from: number
  readonly to: number
}

// Not attributes() of rtnetlink-codec.ts, which copies each: here are a dozen of them in each of 200,000 entries.
function find(span: Span | undefined, type: number): Span | undefined {
  if (span === undefined) return undefined
  const { data, to } = span
  for (let at = span.from; at + ATTRIBUTE_HEAD_BYTES <= to;) {
    const length = readU16(data, at)
    if (length < ATTRIBUTE_HEAD_BYTES || at + length > to) return undefined
    const found = readU16(data, at + 2) & TYPE_MASK
    if (found === type) return { data, from: at + ATTRIBUTE_HEAD_BYTES, to: at + length }
    at += (length + 3) & ~3
  }
  return undefined
}

function u32(span: Span | undefined): number | undefined {
  return span === undefined || span.to - span.from !== 4 ? undefined : span.data.readUInt32BE(span.from)
}

function u8(span: Span | undefined): number | undefined {
  return span === undefined || span.to - span.from !== 1 ? undefined : span.data.readUInt8(span.from)
}
