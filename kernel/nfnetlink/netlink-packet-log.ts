/** Reads logged packets through nfnetlink_log, with npm `netlink`. The kernel forgets the group with the socket. */
import { Protocol, RawNetlinkSocket, formatMessage, parseError, parseMessages } from 'netlink'
import type { Clock } from '../../reconcile/reconcile.ts'
import { messageOf } from '../../runtime/runtime.ts'
import { KernelError } from '../kernel.ts'
import { closeAtExit, errnoError } from '../route/route.ts'
import { CONFIG_MESSAGE, PACKET_MESSAGE, decodeLogged, encodeFollowRequest } from './log-codec.ts'
import type { LoggedPacket, PacketLog } from './packet-log.ts'

/** From linux/netlink.h. */
const NLMSG_ERROR = 2
const NLM_F_REQUEST = 1
const NLM_F_ACK = 4
const ANSWER_MS = 5000
/** If the queue is full, npm `netlink` aborts the process. Rules limit what they log, so this is never reached. */
const RECEIVE_BUFFER_BYTES = 8 << 20

export class NetlinkPacketLog implements PacketLog {
  readonly #clock: Pick<Clock, 'setTimer'>

  constructor({ clock }: { readonly clock: Pick<Clock, 'setTimer'> }) {
    this.#clock = clock
  }

  /** Follows the network namespace in which the process is at the time of the call. */
  async follow(group: number, listener: (packet: LoggedPacket) => void, signal?: AbortSignal): Promise<() => void> {
    const operation = `follow nflog group ${group}`
    if (signal?.aborted === true) throw new KernelError('EINTR', operation, 'stopped before it began')
    const socket = openSocket(operation)
    const close = closeAtExit(socket)
    const { promise: bound, resolve, reject } = Promise.withResolvers<undefined>()
    const onAbort = (): void => reject(new KernelError('EINTR', operation, 'stopped'))
    const stopTimer = this.#clock.setTimer(ANSWER_MS, () =>
      reject(new KernelError('TIMEOUT', operation, 'no answer from the kernel')),
    )
    signal?.addEventListener('abort', onAbort, { once: true })
    let isOpen = true
    socket.on('message', (bytes) => {
      if (!isOpen) return
      for (const { type, flags, data } of parseMessages(bytes)) {
        if (type === NLMSG_ERROR) {
          const { errno } = parseError(Buffer.from(data), flags)
          if (errno === 0) resolve(undefined)
          else reject(errnoError(operation, errno))
        } else if (type === PACKET_MESSAGE) {
          const packet = decodeLogged(Buffer.from(data), group)
          if (packet !== undefined) listener(packet)
        }
      }
    })
    // After the answer these mean packets that were lost, which are only samples.
    socket.on('error', (error) => reject(new KernelError('UNKNOWN', operation, messageOf(error))))
    const stop = (): void => {
      if (!isOpen) return
      isOpen = false
      close()
    }
    try {
      const { port } = socket.address()
      const message = { type: CONFIG_MESSAGE, flags: NLM_F_REQUEST | NLM_F_ACK, seq: 1, port }
      socket.send(formatMessage({ ...message, data: encodeFollowRequest(group) }).flat())
      await bound
      socket.unref()
      return stop
    } catch (error) {
      stop()
      throw error
    } finally {
      stopTimer()
      signal?.removeEventListener('abort', onAbort)
    }
  }
}

function openSocket(operation: string): RawNetlinkSocket {
  try {
    return new RawNetlinkSocket(Protocol.NETFILTER, { recvBufferSize: RECEIVE_BUFFER_BYTES, sendBufferSize: 0 })
  } catch (error) {
    throw new KernelError('UNKNOWN', operation, messageOf(error), { cause: error })
  }
}
