/**
 * Reads connection tracking through ctnetlink, and forgets flows, with npm `netlink`. Entries are visited as they
 * arrive: request() of the package keeps a whole listing in memory, and there may be millions of entries. The kernel
 * writes the next part only when one is read, so closing the socket ends the listing.
 */
import { readFileSync } from 'node:fs'
import { Protocol, RawNetlinkSocket, formatMessage, parseError, parseMessages } from 'netlink'
import type { Prefix } from '../../model/addresses/addresses.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { KernelError } from '../kernel.ts'
import { NLM_F_DUMP, closeAtExit, errnoError, readU32 } from '../route/route.ts'
import type {
  AnswerEnds,
  CallLookup,
  CallsInit,
  ConnectionScan,
  ConnectionTable,
  EntryState,
  FlowTable,
  TrackedConnection,
  TranslatedFlow,
} from './connection-table.ts'
import {
  DELETE_MESSAGE,
  ENTRY_MESSAGE,
  LIST_MESSAGE,
  decodeCall,
  decodeConnection,
  decodeFlow,
  decodeState,
  encodeCallsRequest,
  encodeFlowsRequest,
  encodeForgetRequest,
  encodeListRequest,
  encodeStateRequest,
  rangeOf,
} from './ctnetlink-codec.ts'

/** From linux/netlink.h. */
const NLMSG_ERROR = 2
const NLMSG_DONE = 3
const NLM_F_REQUEST = 1
const NLM_F_ACK = 4
const DEFAULT_TIMEOUT_MS = 10_000
const LIST = 'conntrack -L -f ipv4'
const DELETE = 'conntrack -D'
/** Removals in one message to the kernel, which works on all of them before it returns. */
const REMOVALS_TOGETHER = 100
const GET = 'conntrack -G'
/** Answers to requests of one message: each takes about 5 kB of the socket's queue. */
const LOOKUPS_TOGETHER = 16
const ENOENT = 2

export interface ConntrackInit {
  readonly clock: Pick<Clock, 'setTimer'>
  /** For a whole listing, and for one message of removals; default 10,000. */
  readonly timeoutMs?: number
}

export class Conntrack implements ConnectionTable, FlowTable, CallLookup {
  readonly #clock: Pick<Clock, 'setTimer'>
  readonly #timeoutMs: number

  constructor({ clock, timeoutMs = DEFAULT_TIMEOUT_MS }: ConntrackInit) {
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  /** Reads the network namespace in which the process is at the time of the call. */
  scan(limit: number, visit: (connection: TrackedConnection) => void, signal?: AbortSignal): Promise<ConnectionScan> {
    const reader = new ListReader(LIST, limit, (data) => {
      const connection = decodeConnection(data)
      if (connection !== undefined) visit(connection)
    })
    return this.#exchange(LIST, signal, {
      send: (port) => [listRequest(port, encodeListRequest())],
      take: (bytes) => reader.take(bytes),
    })
  }

  /** As scan(). */
  flows(
    called: Prefix,
    limit: number,
    visit: (flow: TranslatedFlow) => void,
    signal?: AbortSignal,
  ): Promise<ConnectionScan> {
    const operation = `conntrack -L -p udp -f ipv${called.family}`
    const range = rangeOf(called)
    const reader = new ListReader(operation, limit, (data) => {
      const flow = decodeFlow(data, range)
      if (flow !== undefined) visit(flow)
    })
    return this.#exchange(operation, signal, {
      send: (port) => [listRequest(port, encodeFlowsRequest(called))],
      take: (bytes) => reader.take(bytes),
    })
  }

  /** As scan(). */
  calls(
    { called, state, limit }: CallsInit,
    visit: (call: TranslatedFlow) => void,
    signal?: AbortSignal,
  ): Promise<ConnectionScan> {
    const operation = `conntrack -L -p tcp -f ipv${called.family}`
    const range = rangeOf(called)
    const lastsSeconds = establishedSeconds()
    const reader = new ListReader(operation, limit, (data) => {
      const call = decodeCall(data, range, state, lastsSeconds)
      if (call !== undefined) visit(call)
    })
    return this.#exchange(operation, signal, {
      send: (port) => [listRequest(port, encodeCallsRequest(called, state))],
      take: (bytes) => reader.take(bytes),
    })
  }

  /** As scan(). */
  async forget(flows: readonly TranslatedFlow[], signal?: AbortSignal): Promise<number> {
    let forgotten = 0
    for (let at = 0; at < flows.length; at += REMOVALS_TOGETHER) {
      const some = flows.slice(at, at + REMOVALS_TOGETHER)
      const reader = new RemovalReader(some.length)
      forgotten += await this.#exchange(DELETE, signal, {
        send: (port) =>
          some.map((flow, i) => removalRequest(port, flow, { seq: i + 1, isLast: i === some.length - 1 })),
        take: (bytes) => reader.take(bytes),
      })
    }
    return forgotten
  }

  /** As scan(). */
  async states(calls: readonly AnswerEnds[], signal?: AbortSignal): Promise<readonly (EntryState | undefined)[]> {
    const found: (EntryState | undefined)[] = []
    for (let at = 0; at < calls.length; at += LOOKUPS_TOGETHER) {
      const some = calls.slice(at, at + LOOKUPS_TOGETHER)
      const reader = new StateReader(some.length)
      const states = await this.#exchange(GET, signal, {
        send: (port) =>
          some.map((ends, i) =>
            formatMessage({
              ...{ type: LIST_MESSAGE, flags: NLM_F_REQUEST, seq: i + 1, port },
              data: encodeStateRequest(ends),
            }),
          ),
        take: (bytes) => reader.take(bytes),
      })
      found.push(...states)
    }
    return found
  }

  /** Sends messages on a socket of their own, and takes what arrives until there is a result. Throws KernelError. */
  async #exchange<T>(
    operation: string,
    signal: AbortSignal | undefined,
    {
      send,
      take,
    }: { readonly send: (port: number) => readonly Uint8Array[][]; readonly take: (bytes: Buffer) => T | undefined },
  ): Promise<T> {
    if (signal?.aborted === true) throw new KernelError('EINTR', operation, 'stopped before it began')
    const socket = openSocket()
    const close = closeAtExit(socket)
    const { promise, resolve, reject } = Promise.withResolvers<T>()
    const fail = (code: 'TIMEOUT' | 'EINTR' | 'UNKNOWN', detail: string): void => {
      reject(new KernelError(code, operation, detail))
    }
    const onAbort = (): void => fail('EINTR', 'stopped')
    const stopTimer = this.#clock.setTimer(this.#timeoutMs, () => fail('TIMEOUT', 'the list has no end'))
    signal?.addEventListener('abort', onAbort, { once: true })
    socket.on('message', (bytes) => {
      try {
        const end = take(bytes)
        if (end !== undefined) resolve(end)
      } catch (error) {
        reject(error)
      }
    })
    socket.on('error', (error) => fail('UNKNOWN', messageOf(error)))
    socket.on('truncatedMessage', () => fail('UNKNOWN', 'a message was truncated'))
    try {
      socket.send(send(socket.address().port).flat())
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
  readonly #operation: string
  readonly #limit: number
  readonly #visit: (data: Buffer) => void
  #read = 0
  #ended = false

  constructor(operation: string, limit: number, visit: (data: Buffer) => void) {
    this.#operation = operation
    this.#limit = limit
    this.#visit = visit
  }

  /** Returns how the listing ended, once. Throws KernelError. */
  take(bytes: Buffer): ConnectionScan | undefined {
    // More parts may arrive before the socket is closed.
    if (this.#ended) return undefined
    for (const { type, flags, data } of parseMessages(bytes)) {
      if (type === NLMSG_DONE) return this.#done(data)
      if (type === NLMSG_ERROR) throw errnoError(this.#operation, parseError(Buffer.from(data), flags).errno)
      if (type !== ENTRY_MESSAGE) continue
      if (this.#read >= this.#limit) return this.#end(false)
      this.#read += 1
      this.#visit(data)
    }
    return undefined
  }

  /** A listing that the kernel breaks off ends with a negative error number. */
  #done(data: Buffer): ConnectionScan {
    const errno = data.length < 4 ? 0 : readU32(data) | 0
    if (errno < 0) throw errnoError(this.#operation, errno)
    return this.#end(true)
  }

  #end(whole: boolean): ConnectionScan {
    this.#ended = true
    return { whole }
  }
}

/** Reads the answers to several removals: one for each that failed, and one for the last. */
class RemovalReader {
  readonly #count: number
  #missing = 0

  constructor(count: number) {
    this.#count = count
  }

  /** Returns how many entries were removed, after the answer to the last. Throws KernelError. */
  take(bytes: Buffer): number | undefined {
    for (const { type, flags, seq, data } of parseMessages(bytes)) {
      if (type !== NLMSG_ERROR) continue
      const { errno } = parseError(Buffer.from(data), flags)
      // The entry has ended by itself, or another one has its place.
      if (Math.abs(errno) === ENOENT) this.#missing += 1
      else if (errno !== 0) throw errnoError(DELETE, errno)
      if (seq === this.#count) return this.#count - this.#missing
    }
    return undefined
  }
}

/** Reads the answers to several lookups: an entry or an error for each. */
class StateReader {
  readonly #states: (EntryState | undefined)[]
  readonly #open: Set<number>

  constructor(count: number) {
    this.#states = new Array<EntryState | undefined>(count).fill(undefined)
    this.#open = new Set(this.#states.keys())
  }

  /** Returns the states after the last answer. Throws KernelError. */
  take(bytes: Buffer): readonly (EntryState | undefined)[] | undefined {
    for (const { type, flags, seq, data } of parseMessages(bytes)) {
      if (type === NLMSG_ERROR) {
        const { errno } = parseError(Buffer.from(data), flags)
        if (errno !== 0 && Math.abs(errno) !== ENOENT) throw errnoError(GET, errno)
      } else if (type === ENTRY_MESSAGE && this.#open.has(seq - 1)) {
        this.#states[seq - 1] = decodeState(data)
      }
      this.#open.delete(seq - 1)
    }
    return this.#open.size === 0 ? this.#states : undefined
  }
}

/** How long an entry of an established TCP connection lasts. Undefined: the kernel does not say. */
function establishedSeconds(): number | undefined {
  try {
    // At once, because another thread may be in another network namespace.
    const text = readFileSync('/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established', 'utf8').trim()
    return /^\d{1,10}$/.test(text) ? Number(text) : undefined
  } catch {
    return undefined
  }
}

function listRequest(port: number, data: Uint8Array[]): Uint8Array[] {
  return formatMessage({ type: LIST_MESSAGE, flags: NLM_F_REQUEST | NLM_F_DUMP, seq: 1, port, data })
}

function removalRequest(
  port: number,
  flow: TranslatedFlow,
  { seq, isLast }: { readonly seq: number; readonly isLast: boolean },
): Uint8Array[] {
  const flags = isLast ? NLM_F_REQUEST | NLM_F_ACK : NLM_F_REQUEST
  return formatMessage({ type: DELETE_MESSAGE, flags, seq, port, data: encodeForgetRequest(flow) })
}

function openSocket(): RawNetlinkSocket {
  try {
    return new RawNetlinkSocket(Protocol.NETFILTER)
  } catch (error) {
    throw new KernelError('UNKNOWN', 'open a netlink socket', messageOf(error), { cause: error })
  }
}
