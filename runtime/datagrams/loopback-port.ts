/**
 * A UDP port on loopback that stands for a far end: what the cable sends there goes to a relay, and what comes from the
 * relay reaches the cable from there. It exchanges datagrams with one port of this machine and no other.
 */
import { createSocket } from 'node:dgram'

const LOOPBACK = '127.0.0.1'
/** Datagrams that arrive while this process is busy. The kernel may give less. */
const RECEIVE_BYTES = 4 << 20

export interface LoopbackPortInit {
  /** The port of the cable. */
  readonly cable: number
  readonly onReady: () => void
  /** The octets belong to the listener. */
  readonly onDatagram: (bytes: Buffer) => void
  /** It has ended. */
  readonly onError: (error: Error) => void
}

export interface LoopbackPort {
  /** Undefined before onReady(). */
  readonly port: number | undefined
  send(bytes: Buffer): void
  close(): void
}

export function openLoopbackPort({ cable, onReady, onDatagram, onError }: LoopbackPortInit): LoopbackPort {
  const socket = createSocket({ type: 'udp4' })
  let port: number | undefined
  let isOpen = true
  const close = (): void => {
    if (!isOpen) return
    isOpen = false
    socket.close()
  }
  socket.on('connect', () => {
    if (!isOpen) return
    try {
      socket.setRecvBufferSize(RECEIVE_BYTES)
    } catch {
      // The default size works, with more loss.
    }
    port = socket.address().port
    onReady()
  })
  // A connected socket takes datagrams of the cable alone, and sends without looking for a route each time. The kernel
  // keeps those that came from anywhere before it was connected.
  socket.on('message', (bytes, from) => {
    if (isOpen && port !== undefined && from.port === cable && from.address === LOOPBACK) onDatagram(bytes)
  })
  socket.on('error', (error) => {
    // The device of the cable may be away for a moment.
    if (!isOpen || (error as NodeJS.ErrnoException).code === 'ECONNREFUSED') return
    close()
    onError(error)
  })
  socket.bind({ address: LOOPBACK, port: 0 }, () => {
    if (isOpen) socket.connect(cable, LOOPBACK)
  })
  return {
    get port() {
      return port
    },
    // Without a callback, which would cost as much as the rest of it.
    send: (bytes) => {
      if (isOpen && port !== undefined) socket.send(bytes)
    },
    close,
  }
}
