/**
 * Reads connection tracking through ctnetlink, with npm `netlink`. Entries are visited as they arrive: request() of the
 * package keeps a whole listing in memory, and there may be millions of entries. The kernel writes the next part only
 * when one is read, so closing the socket ends the listing.
 */
import { Protocol, RawNetlinkSocket, formatMessage, parseError, parseMessages } from 'netlink'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { KernelError } from '../kernel.ts'
import { AF_INET, type Attribute, NLM_F_DUMP, body, closeAtExit, errnoError, readU16, readU32 } from '../route/route.ts'
import type { ConnectionScan, ConnectionTable, TrackedConnection } from './connection-table.ts'

// Constants of linux/netfilter/nfnetlink_conntrack.h. Values from the kernel are in network byte order.

const SUBSYSTEM = 1 << 8
/** IPCTNL_MSG_CT_NEW: one entry of a listing. */
const ENTRY_MESSAGE = SUBSYSTEM
/** IPCTNL_MSG_CT_GET */
const LIST_MESSAGE = SUBSYSTEM | 1

const NFGENMSG_BYTES = 4
const ATTRIBUTE_HEAD_BYTES = 4
/** The upper two bits of an attribute type are flags. */
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

/** Requests assured IPv4 entries. Older kernels ignore the status filter and list all IPv4 entries. */
export function encodeListRequest(): Uint8Array[] {
  const status = Buffer.alloc(4)
  status.writeUInt32BE(IPS_ASSURED)
  const attributes: readonly Attribute[] = [[CTA_STATUS, status]]
  return body(Buffer.from([AF_INET, 0, 0, 0]), attributes)
}

/** Returns undefined if the entry is not an open connection. */
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

function u32(span: Span | undefined): number | undefined {
  return span === undefined || span.to - span.from !== 4 ? undefined : span.data.readUInt32BE(span.from)
}

function u8(span: Span | undefined): number | undefined {
  return span === undefined || span.to - span.from !== 1 ? undefined : span.data.readUInt8(span.from)
}

/** From linux/netlink.h. */
const NLMSG_ERROR = 2
const NLMSG_DONE = 3
const NLM_F_REQUEST = 1
const DEFAULT_TIMEOUT_MS = 10_000
const OPERATION = 'conntrack -L -f ipv4'

export interface ConntrackInit {
  readonly clock: Pick<Clock, 'setTimer'>
  /** For a whole listing; default 10,000. */
  readonly timeoutMs?: number
}

export class Conntrack implements ConnectionTable {
  readonly #clock: Pick<Clock, 'setTimer'>
  readonly #timeoutMs: number

  constructor({ clock, timeoutMs = DEFAULT_TIMEOUT_MS }: ConntrackInit) {
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  /** Reads the network namespace in which the process is at the time of the call. */
  async scan(
    limit: number,
    visit: (connection: TrackedConnection) => void,
    signal?: AbortSignal,
  ): Promise<ConnectionScan> {
    if (signal?.aborted === true) throw new KernelError('EINTR', OPERATION, 'stopped before it began')
    const socket = openSocket()
    const close = closeAtExit(socket)
    const { promise, resolve, reject } = Promise.withResolvers<ConnectionScan>()
    const fail = (code: 'TIMEOUT' | 'EINTR' | 'UNKNOWN', detail: string): void => {
      reject(new KernelError(code, OPERATION, detail))
    }
    const onAbort = (): void => fail('EINTR', 'stopped')
    const stopTimer = this.#clock.setTimer(this.#timeoutMs, () => fail('TIMEOUT', 'the list has no end'))
    signal?.addEventListener('abort', onAbort, { once: true })
    const reader = new ListReader(limit, visit)
    socket.on('message', (bytes) => {
      try {
        const end = reader.take(bytes)
        if (end !== undefined) resolve(end)
      } catch (error) {
        reject(error)
      }
    })
    socket.on('error', (error) => fail('UNKNOWN', messageOf(error)))
    socket.on('truncatedMessage', () => fail('UNKNOWN', 'a message was truncated'))
    try {
      socket.send(listRequest(socket.address().port))
      return await promise
    } finally {
      stopTimer()
      signal?.removeEventListener('abort', onAbort)
      close()
    }
  }
}

/** Reads the parts of one listing. */
class ListReader {
  readonly #limit: number
  readonly #visit: (connection: TrackedConnection) => void
  #read = 0
  #ended = false

  constructor(limit: number, visit: (connection: TrackedConnection) => void) {
    this.#limit = limit
    this.#visit = visit
  }

  /** Returns how the listing ended, once. Throws KernelError. */
  take(bytes: Buffer): ConnectionScan | undefined {
    // More parts may arrive before the socket is closed.
    if (this.#ended) return undefined
    for (const { type, flags, data } of parseMessages(bytes)) {
      if (type === NLMSG_DONE) return this.#done(data)
      if (type === NLMSG_ERROR) throw errnoError(OPERATION, parseError(Buffer.from(data), flags).errno)
      if (type !== ENTRY_MESSAGE) continue
      if (this.#read >= this.#limit) return this.#end(false)
      this.#read += 1
      const connection = decodeConnection(data)
      if (connection !== undefined) this.#visit(connection)
    }
    return undefined
  }

  /** A listing that the kernel breaks off ends with a negative error number. */
  #done(data: Buffer): ConnectionScan {
    const errno = data.length < 4 ? 0 : readU32(data) | 0
    if (errno < 0) throw errnoError(OPERATION, errno)
    return this.#end(true)
  }

  #end(whole: boolean): ConnectionScan {
    this.#ended = true
    return { whole }
  }
}

function listRequest(port: number): Uint8Array[] {
  return formatMessage({
    type: LIST_MESSAGE,
    flags: NLM_F_REQUEST | NLM_F_DUMP,
    seq: 1,
    port,
    data: encodeListRequest(),
  })
}

function openSocket(): RawNetlinkSocket {
  try {
    return new RawNetlinkSocket(Protocol.NETFILTER)
  } catch (error) {
    throw new KernelError('UNKNOWN', 'open a netlink socket', messageOf(error), { cause: error })
  }
}
