/**
 * Connection tracking by ctnetlink, on npm `netlink`. Entries are looked at as they come: the package's own request()
 * keeps a whole listing in memory, and there may be millions. The kernel writes the next part when one is read, so
 * closing the socket ends the listing.
 */
import { Protocol, RawNetlinkSocket, formatMessage, parseError, parseMessages } from 'netlink'
import type { Clock } from '../../reconcile/clock.ts'
import { messageOf } from '../../runtime/thrown.ts'
import { KernelError } from '../errors.ts'
import { closeAtExit } from '../route/close-at-exit.ts'
import { NLM_F_DUMP, errnoError } from '../route/netlink-socket.ts'
import { readU32 } from '../route/rtnetlink-codec.ts'
import { ENTRY_MESSAGE, LIST_MESSAGE, decodeConnection, encodeListRequest } from './conntrack-codec.ts'
import type { ConnectionScan, ConnectionTable, TrackedConnection } from './connection-table.ts'

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

  /** The namespace is that of the process at this moment. */
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
    const stopTimer = this.#clock.setTimer(this.#timeoutMs, () => fail('TIMEOUT', 'no end of the list'))
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
    socket.on('truncatedMessage', () => fail('UNKNOWN', 'a message was cut'))
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

/** One listing, part after part. */
class ListReader {
  readonly #limit: number
  readonly #visit: (connection: TrackedConnection) => void
  #read = 0
  #ended = false

  constructor(limit: number, visit: (connection: TrackedConnection) => void) {
    this.#limit = limit
    this.#visit = visit
  }

  /** Gives how it ended, once. Throws KernelError. */
  take(bytes: Buffer): ConnectionScan | undefined {
    // Parts may come until the socket is closed, which is a moment after the end.
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

  /** A listing that broke off ends with an error number, which is negative. */
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
