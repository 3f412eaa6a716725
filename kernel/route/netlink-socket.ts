/**
 * One netlink socket of this network namespace, based on npm `netlink`: sequential requests, errors as KernelError,
 * deadlines, and dumps that are repeated if the kernel reports that they are inconsistent.
 *
 * It uses the message layer of the package, not the typed one, which decodes every attribute it knows, throws if a
 * newer kernel has extended one, and hides the flag of an inconsistent dump.
 */
import { getSystemErrorName } from 'node:util'
import { type NetlinkSocket, Protocol, createNetlink, parseError } from 'netlink'
import { SerialQueue } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { KernelError, type KernelErrorCode } from '../kernel.ts'

/**
 * Netlink sockets to close when the process ends. Otherwise npm `netlink` would pass a pending notification to
 * JavaScript that can no longer run, and abort the process.
 */

interface Closable {
  close(): void
}

const open = new Set<Closable>()

/** Returns the function that closes the socket. A socket that is still open is closed when the process ends. */
export function closeAtExit(socket: Closable): () => void {
  if (open.size === 0) process.on('exit', closeAll)
  open.add(socket)
  return () => {
    if (!open.delete(socket)) return
    if (open.size === 0) process.off('exit', closeAll)
    socket.close()
  }
}

function closeAll(): void {
  for (const socket of open) socket.close()
  open.clear()
}

/** Constants of linux/netlink.h. */
const NLMSG_ERROR = 2
const NLM_F_DUMP_INTR = 0x10
export const NLM_F_DUMP = 0x300
const MAX_TORN_DUMPS = 5
const DEFAULT_TIMEOUT_MS = 5_000
/**
 * Octets that the kernel may queue for a socket; the kernel caps this at twice `net.core.rmem_max`. If the queue is
 * full, npm `netlink` aborts the process instead of reporting lost messages. Memory is used only while messages are
 * queued.
 */
const RECEIVE_BUFFER_BYTES = 32 << 20

export const NLM_F_REPLACE = 0x100
export const NLM_F_EXCL = 0x200
export const NLM_F_CREATE = 0x400

export interface KernelMessage {
  readonly type: number
  readonly data: Buffer
}

export interface Request {
  /** An RTM_… or XFRM_MSG_… number. */
  readonly type: number
  readonly flags?: number
  readonly body: readonly Uint8Array[]
  /** What was tried, as a command, for error messages. */
  readonly operation: string
  readonly signal?: AbortSignal | undefined
}

export class RtnetlinkSocket {
  readonly #socket: NetlinkSocket
  readonly #timeoutMs: number
  readonly #close: () => void
  #closed = false
  /**
   * Requests run one after the other. The kernel allows one dump at a time for each socket and refuses a second one
   * with EBUSY.
   */
  readonly #queue = new SerialQueue()

  /** Throws KernelError, also if the kernel does not have the protocol. */
  constructor(timeoutMs: number = DEFAULT_TIMEOUT_MS, protocol: 'route' | 'xfrm' = 'route') {
    this.#socket = openSocket('open a netlink socket', protocol === 'route' ? Protocol.ROUTE : Protocol.XFRM)
    this.#close = closeAtExit(this.#socket)
    this.#timeoutMs = timeoutMs
    // A lost answer ends with the deadline of its request.
    this.#socket.on('error', () => undefined)
  }

  /** Sends a request and returns the messages of the answer, none for a plain acknowledgement. */
  request(request: Request): Promise<readonly KernelMessage[]> {
    return this.#queued(request, async () => (await this.#send(request, request.flags ?? 0)).messages)
  }

  /** Returns all messages of a listing. */
  dump(request: Request): Promise<readonly KernelMessage[]> {
    return this.#queued(request, async () => {
      for (let tries = 0; tries < MAX_TORN_DUMPS; tries++) {
        const { messages, torn } = await this.#send(request, NLM_F_DUMP)
        if (!torn) return messages
      }
      throw new KernelError('EINTR', request.operation, 'the list changed during each attempt to read it')
    })
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#close()
  }

  #queued<T>(request: Request, send: () => Promise<T>): Promise<T> {
    return this.#queue.run(() => {
      if (this.#closed) throw new KernelError('EINTR', request.operation, 'the socket is closed')
      if (request.signal?.aborted === true) throw new KernelError('EINTR', request.operation, 'stopped before it began')
      return send()
    })
  }

  async #send(request: Request, flags: number): Promise<{ messages: readonly KernelMessage[]; torn: boolean }> {
    const options = { flags, timeout: this.#timeoutMs, checkError: false }
    let answer
    try {
      ;[answer] = await this.#socket.request(request.type, [...request.body], options)
    } catch (error) {
      throw sendError(request.operation, error)
    }
    const first = answer[0]
    if (first?.type === NLMSG_ERROR) {
      const { errno } = parseError(Buffer.from(first.data), first.flags)
      if (errno !== 0) throw errnoError(request.operation, errno)
      return { messages: [], torn: false }
    }
    const messages = answer.map((message) => ({ type: message.type, data: Buffer.from(message.data) }))
    return { messages, torn: answer.some((message) => (message.flags & NLM_F_DUMP_INTR) !== 0) }
  }
}

/**
 * Calls `listener` when one of the groups sends a notification that concerns it, or when notifications were lost.
 * Several at once cause one call. Does not keep the process alive. Returns the function that ends the watch. Throws
 * KernelError.
 */
export function watchGroups(groups: readonly number[], listener: () => void, concerns: Concerns = every): () => void {
  let pending = false
  const watch = watchMessages({ groups }, (message) => {
    if (pending || (message !== undefined && !concerns(message))) return
    pending = true
    setImmediate(() => {
      pending = false
      if (watch.isOpen()) listener()
    })
  })
  return watch.stop
}

/** True if a notification is of interest. */
type Concerns = (message: KernelMessage) => boolean

function every(): boolean {
  return true
}

export interface WatchInit {
  /** Default: rtnetlink. */
  readonly protocol?: 'route' | 'netfilter'
  readonly groups: readonly number[]
}

/**
 * Calls `listener` with each notification of these groups, or with undefined if some were lost (ENOBUFS) or cannot be
 * parsed. Does not keep the process alive. Throws KernelError.
 */
export function watchMessages(
  { protocol = 'route', groups }: WatchInit,
  listener: (message: KernelMessage | undefined) => void,
): { readonly stop: () => void; readonly isOpen: () => boolean } {
  const operation = 'open a netlink socket for notifications'
  const socket = openSocket(operation, protocol === 'route' ? Protocol.ROUTE : Protocol.NETFILTER)
  const close = closeAtExit(socket)
  let open = true
  const lost = (): void => {
    if (open) listener(undefined)
  }
  socket.on('message', (messages) => {
    for (const { type, data } of messages) if (open) listener({ type, data: Buffer.from(data) })
  })
  socket.on('invalid', lost)
  socket.on('error', lost)
  for (const group of groups) socket.addMembership(group)
  const stop = (): void => {
    if (!open) return
    open = false
    close()
  }
  return { stop, isOpen: () => open }
}

function openSocket(operation: string, protocol: number = Protocol.ROUTE): NetlinkSocket {
  try {
    // 0 leaves the send buffer at its default.
    return createNetlink(protocol, { recvBufferSize: RECEIVE_BUFFER_BYTES, sendBufferSize: 0 })
  } catch (error) {
    const named = error instanceof Error && 'code' in error ? String(error.code) : ''
    const code = UNSUPPORTED.has(named) ? 'EOPNOTSUPP' : knownCode(named)
    throw new KernelError(code, operation, messageOf(error), { cause: error })
  }
}

/** A kernel without the protocol, or without netlink. */
const UNSUPPORTED: ReadonlySet<string> = new Set(['EPROTONOSUPPORT', 'EAFNOSUPPORT'])

const KNOWN: ReadonlySet<string> = new Set<KernelErrorCode>([
  'EEXIST',
  'ENOENT',
  'ESRCH',
  'EBUSY',
  'EINVAL',
  'EPERM',
  'ENODEV',
  'EOPNOTSUPP',
  'EADDRINUSE',
  'EADDRNOTAVAIL',
  'ENETDOWN',
  'ENETUNREACH',
  'EHOSTUNREACH',
  'EINTR',
])

const MEANING: Readonly<Record<string, string>> = {
  EEXIST: 'it exists',
  ENOENT: 'there is none',
  ESRCH: 'there is none',
  ENODEV: 'no such device',
  EPERM: 'not permitted',
  EADDRNOTAVAIL: 'no such address',
  ENETDOWN: 'the device is down',
  ENETUNREACH: 'network is unreachable',
  EHOSTUNREACH: 'no route to host',
  EINVAL: 'refused as invalid',
  EBUSY: 'busy',
  EOPNOTSUPP: 'not supported by this kernel',
}

/** `errno` is negative, as in messages of the kernel. */
export function errnoError(operation: string, errno: number): KernelError {
  let name: string
  try {
    name = getSystemErrorName(errno)
  } catch {
    name = `error ${-errno}`
  }
  if (name === 'ENOTSUP') name = 'EOPNOTSUPP'
  if (name === 'EACCES') name = 'EPERM'
  return new KernelError(knownCode(name), operation, MEANING[name] ?? name)
}

function knownCode(name: string): KernelErrorCode {
  return KNOWN.has(name) ? (name as KernelErrorCode) : 'UNKNOWN'
}

function sendError(operation: string, error: unknown): KernelError {
  const text = messageOf(error)
  if (/Timeout has been reached/.test(text))
    return new KernelError('TIMEOUT', operation, 'no answer from the kernel', { cause: error })
  return new KernelError('UNKNOWN', operation, text, { cause: error })
}
