/** Encodes and decodes messages of ctnetlink (linux/netfilter/nfnetlink_conntrack.h). Pure. */
import { type Prefix, addressBits, formatAddress } from '../../model/addresses/addresses.ts'
import {
  AF_INET,
  AF_INET6,
  type Attribute,
  addressBytes,
  body,
  nested,
  readU16,
  u16be,
  u32,
  u8,
} from '../route/route.ts'
import type { AnswerEnds, CallState, EntryState, TrackedConnection, TranslatedFlow } from './connection-table.ts'

// Constants of linux/netfilter/nfnetlink_conntrack.h. Values from the kernel are in network byte order.

const SUBSYSTEM = 1 << 8
/** IPCTNL_MSG_CT_NEW: one entry of a listing. */
export const ENTRY_MESSAGE = SUBSYSTEM
/** IPCTNL_MSG_CT_GET */
export const LIST_MESSAGE = SUBSYSTEM | 1
/** IPCTNL_MSG_CT_DELETE */
export const DELETE_MESSAGE = SUBSYSTEM | 2

const NFGENMSG_BYTES = 4
const ATTRIBUTE_HEAD_BYTES = 4
/** The upper two bits of an attribute type are flags. */
const TYPE_MASK = 0x3fff

const CTA_TUPLE_ORIG = 1
const CTA_TUPLE_REPLY = 2
const CTA_STATUS = 3
const CTA_PROTOINFO = 4
const CTA_TIMEOUT = 7
const CTA_ID = 12
const CTA_ZONE = 18
const CTA_FILTER = 25
const CTA_STATUS_MASK = 26
const CTA_TUPLE_IP = 1
const CTA_TUPLE_PROTO = 2
const CTA_IP_V4_SRC = 1
const CTA_IP_V4_DST = 2
const CTA_IP_V6_SRC = 3
const CTA_IP_V6_DST = 4
const CTA_PROTO_NUM = 1
const CTA_PROTO_SRC_PORT = 2
const CTA_PROTO_DST_PORT = 3
const CTA_FILTER_ORIG_FLAGS = 1
/** CTA_FILTER_F_CTA_PROTO_NUM of the kernel: only entries of the protocol in CTA_TUPLE_ORIG. */
const FILTER_PROTOCOL = 1 << 3
const CTA_PROTOINFO_TCP = 1
const CTA_PROTOINFO_TCP_STATE = 1

const IPS_SEEN_REPLY = 1 << 1
const IPS_ASSURED = 1 << 2
const TCP_SYN_SENT = 1
const TCP_ESTABLISHED = 3
// FIN_WAIT, CLOSE_WAIT, LAST_ACK, TIME_WAIT and CLOSE of enum tcp_conntrack (nf_conntrack_tcp.h). What follows is of SYNs.
const [TCP_FIN_WAIT, TCP_CLOSE] = [4, 8] as const
const TCP = 6
const UDP = 17

/** Requests assured IPv4 entries. Older kernels ignore the status filter and list all IPv4 entries. */
export function encodeListRequest(): Uint8Array[] {
  const attributes: readonly Attribute[] = [[CTA_STATUS, be32(IPS_ASSURED)]]
  return body(Buffer.from([AF_INET, 0, 0, 0]), attributes)
}

/** Returns undefined if the entry is not an open connection. */
export function decodeConnection(data: Buffer): TrackedConnection | undefined {
  const entry = { data, from: NFGENMSG_BYTES, to: data.length }
  if (data.length < NFGENMSG_BYTES || data.readUInt8(0) !== AF_INET) return undefined
  if (((readBe32(find(entry, CTA_STATUS)) ?? 0) & IPS_ASSURED) === 0) return undefined
  const origin = find(entry, CTA_TUPLE_ORIG)
  const protocol = readByte(find(find(origin, CTA_TUPLE_PROTO), CTA_PROTO_NUM))
  if (protocol !== UDP && !(protocol === TCP && tcpState(entry) === TCP_ESTABLISHED)) return undefined
  const client = readBe32(find(find(origin, CTA_TUPLE_IP), CTA_IP_V4_SRC))
  const server = readBe32(find(find(find(entry, CTA_TUPLE_REPLY), CTA_TUPLE_IP), CTA_IP_V4_SRC))
  return client === undefined || server === undefined ? undefined : { client, server }
}

function tcpState(entry: Span): number | undefined {
  return readByte(find(find(find(entry, CTA_PROTOINFO), CTA_PROTOINFO_TCP), CTA_PROTOINFO_TCP_STATE))
}

/** A sequence of attributes, or the content of one attribute. */
interface Span {
  readonly data: Buffer
  readonly from: number
  readonly to: number
}

// attributes() of kernel/route/rtnetlink-codec.ts copies each attribute, which is too slow here: 200,000 entries have a
// dozen each.
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

function readBe32(span: Span | undefined): number | undefined {
  return span === undefined || span.to - span.from !== 4 ? undefined : span.data.readUInt32BE(span.from)
}

function readByte(span: Span | undefined): number | undefined {
  return span === undefined || span.to - span.from !== 1 ? undefined : span.data.readUInt8(span.from)
}

// Translated flows.

/**
 * Requests the UDP entries of a family. Kernels before 5.8 ignore the filter and list all entries. No kernel can filter
 * by a range.
 */
export function encodeFlowsRequest({ family }: Pick<Prefix, 'family'>): Uint8Array[] {
  return body(head(family), onlyOf(UDP))
}

/**
 * Requests the TCP entries of a family in this state. Kernels that do not know one of the filters list more entries, and
 * decodeCall() leaves these out.
 */
export function encodeCallsRequest({ family }: Pick<Prefix, 'family'>, state: CallState): Uint8Array[] {
  return body(head(family), [
    ...onlyOf(TCP),
    [CTA_STATUS, be32(state === 'answered' ? IPS_SEEN_REPLY : 0)],
    [CTA_STATUS_MASK, be32(IPS_SEEN_REPLY)],
  ])
}

function onlyOf(protocol: number): readonly Attribute[] {
  return [
    [nested(CTA_TUPLE_ORIG), [[nested(CTA_TUPLE_PROTO), [[CTA_PROTO_NUM, u8(protocol)]]]]],
    [nested(CTA_FILTER), [[CTA_FILTER_ORIG_FLAGS, u32(FILTER_PROTOCOL)]]],
  ]
}

/**
 * The flow of a TCP entry in this state whose client called an address in the range; undefined for another entry.
 * `lastsSeconds`: how long an entry of an established connection lasts after each packet. Undefined: not known.
 */
export function decodeCall(
  data: Buffer,
  called: Range,
  state: CallState,
  lastsSeconds?: number,
): TranslatedFlow | undefined {
  if (data.length < NFGENMSG_BYTES) return undefined
  const entry = { data, from: NFGENMSG_BYTES, to: data.length }
  const status = readBe32(find(entry, CTA_STATUS))
  if (status === undefined || ((status & IPS_SEEN_REPLY) !== 0) !== (state === 'answered')) return undefined
  // An entry that the kernel made in the middle of a connection, after a restart, says nothing about the server.
  if (state === 'unanswered' && tcpState(entry) !== TCP_SYN_SENT) return undefined
  const flow = decodeFlow(data, called, TCP)
  if (flow === undefined) return undefined
  const idleSeconds =
    state === 'answered' && tcpState(entry) === TCP_ESTABLISHED ? idleFor(entry, lastsSeconds) : undefined
  return { ...flow, protocol: 'TCP', ...(idleSeconds === undefined ? {} : { idleSeconds }) }
}

// With data that is not acknowledged, the kernel gives an entry less time. It then seems to be idle for long.
function idleFor(entry: Span, lastsSeconds: number | undefined): number | undefined {
  const leftSeconds = readBe32(find(entry, CTA_TIMEOUT))
  if (leftSeconds === undefined || lastsSeconds === undefined) return undefined
  return Math.max(0, lastsSeconds - leftSeconds)
}

/** The flow of an entry whose client called an address in the range; undefined for another entry. */
export function decodeFlow(data: Buffer, called: Range, protocol = UDP): TranslatedFlow | undefined {
  if (data.length < NFGENMSG_BYTES || data.readUInt8(0) !== called.af) return undefined
  const entry = { data, from: NFGENMSG_BYTES, to: data.length }
  const origin = find(entry, CTA_TUPLE_ORIG)
  const addresses = find(origin, CTA_TUPLE_IP)
  const destination = find(addresses, called.destination)
  // Most entries end here, so this comes before all other work.
  if (destination === undefined || !isInside(destination, called)) return undefined
  const ports = find(origin, CTA_TUPLE_PROTO)
  if (readByte(find(ports, CTA_PROTO_NUM)) !== protocol) return undefined
  const reply = find(entry, CTA_TUPLE_REPLY)
  const id = readBe32(find(entry, CTA_ID))
  const [client, server] = [find(addresses, called.source), find(find(reply, CTA_TUPLE_IP), called.source)]
  const [clientPort, calledPort] = [
    readBe16(find(ports, CTA_PROTO_SRC_PORT)),
    readBe16(find(ports, CTA_PROTO_DST_PORT)),
  ]
  const serverPort = readBe16(find(find(reply, CTA_TUPLE_PROTO), CTA_PROTO_SRC_PORT))
  if (client === undefined || server === undefined || id === undefined) return undefined
  if (clientPort === undefined || calledPort === undefined || serverPort === undefined) return undefined
  return {
    client: { address: textOf(client), port: clientPort },
    called: { address: textOf(destination), port: calledPort },
    server: { address: textOf(server), port: serverPort },
    id,
    zone: readBe16(find(entry, CTA_ZONE)) ?? 0,
  }
}

/** A prefix in the form that decodeFlow() compares fast. */
export interface Range {
  readonly af: number
  readonly source: number
  readonly destination: number
  readonly network: Buffer
  readonly length: number
}

export function rangeOf({ family, value, length }: Prefix): Range {
  const network = Buffer.from(value.toString(16).padStart(addressBits(family) / 4, '0'), 'hex')
  const attributes =
    family === 4
      ? { af: AF_INET, source: CTA_IP_V4_SRC, destination: CTA_IP_V4_DST }
      : { af: AF_INET6, source: CTA_IP_V6_SRC, destination: CTA_IP_V6_DST }
  return { ...attributes, network, length }
}

function isInside({ data, from, to }: Span, { network, length }: Range): boolean {
  if (to - from !== network.length) return false
  const whole = length >> 3
  for (let i = 0; i < whole; i += 1) if (data[from + i] !== network[i]) return false
  const rest = 8 - (length & 7)
  return rest === 8 || (data[from + whole] ?? 0) >> rest === (network[whole] ?? 0) >> rest
}

/**
 * Requests the removal of one entry. The kernel removes it only if its id is still the same, so that a newer entry of the
 * same client and port mostly stays: the id depends on the entry's place in memory, which may be used again. A flow that
 * loses its entry is translated as a new one, which does no harm.
 */
export function encodeForgetRequest(flow: TranslatedFlow): Uint8Array[] {
  const { client, called, id, zone, protocol } = flow
  const family = called.address.includes(':') ? 6 : 4
  const [source, destination] = family === 4 ? [CTA_IP_V4_SRC, CTA_IP_V4_DST] : [CTA_IP_V6_SRC, CTA_IP_V6_DST]
  const attributes: Attribute[] = [
    [
      nested(CTA_TUPLE_ORIG),
      [
        [
          nested(CTA_TUPLE_IP),
          [
            [source, addressBytes(client.address)],
            [destination, addressBytes(called.address)],
          ],
        ],
        [
          nested(CTA_TUPLE_PROTO),
          [
            [CTA_PROTO_NUM, u8(protocol === 'TCP' ? TCP : UDP)],
            [CTA_PROTO_SRC_PORT, u16be(client.port)],
            [CTA_PROTO_DST_PORT, u16be(called.port)],
          ],
        ],
      ],
    ],
    ...(zone === 0 ? [] : [[CTA_ZONE, u16be(zone)] as const]),
    // Last, because its end is a multiple of four bytes, at which the next message begins.
    [CTA_ID, be32(id)],
  ]
  return body(head(family), attributes)
}

/** Requests the one entry whose answers have these ends. */
export function encodeStateRequest({ protocol, server, client }: AnswerEnds): Uint8Array[] {
  const family = server.address.includes(':') ? 6 : 4
  const [source, destination] = family === 4 ? [CTA_IP_V4_SRC, CTA_IP_V4_DST] : [CTA_IP_V6_SRC, CTA_IP_V6_DST]
  return body(head(family), [
    [
      nested(CTA_TUPLE_REPLY),
      [
        [
          nested(CTA_TUPLE_PROTO),
          [
            [CTA_PROTO_NUM, u8(protocol === 'TCP' ? TCP : UDP)],
            [CTA_PROTO_SRC_PORT, u16be(server.port)],
            [CTA_PROTO_DST_PORT, u16be(client.port)],
          ],
        ],
        // Last, because its end is a multiple of four bytes, at which the next message begins.
        [
          nested(CTA_TUPLE_IP),
          [
            [source, addressBytes(server.address)],
            [destination, addressBytes(client.address)],
          ],
        ],
      ],
    ],
  ])
}

/** The state of an entry. Undefined: the message is none of an entry. */
export function decodeState(data: Buffer): EntryState | undefined {
  if (data.length < NFGENMSG_BYTES) return undefined
  const entry = { data, from: NFGENMSG_BYTES, to: data.length }
  const status = readBe32(find(entry, CTA_STATUS))
  if (status === undefined) return undefined
  const state = tcpState(entry)
  if (state !== undefined && state >= TCP_FIN_WAIT && state <= TCP_CLOSE) return 'closing'
  return (status & IPS_SEEN_REPLY) !== 0 ? 'answered' : 'unanswered'
}

function head(family: 4 | 6): Buffer {
  return Buffer.from([family === 4 ? AF_INET : AF_INET6, 0, 0, 0])
}

function textOf({ data, from, to }: Span): string {
  if (to - from === 4) return `${data[from]}.${data[from + 1]}.${data[from + 2]}.${data[from + 3]}`
  return formatAddress({ family: 6, value: BigInt(`0x${data.toString('hex', from, to)}`) })
}

function be32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

function readBe16(span: Span | undefined): number | undefined {
  return span === undefined || span.to - span.from !== 2 ? undefined : span.data.readUInt16BE(span.from)
}
