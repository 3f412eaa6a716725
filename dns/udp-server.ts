/** Datagrams in, datagrams out. Nothing that arrives here can throw out of it. */
import { type Socket, type SocketOptions, createSocket } from 'node:dgram'
import { isIP } from 'node:net'
import { formatAddress } from '../model/ip.ts'
import type { SocketAddress } from './config.ts'

export interface DatagramSource {
  readonly address: string
  readonly port: number
}

export interface UdpServerInit {
  readonly listen: SocketAddress
  readonly reusePort: boolean
  /** Gives the answer to send back at once, or undefined. Must not throw. */
  readonly onQuery: (query: Buffer, source: DatagramSource) => Buffer | undefined
  readonly onError: (error: Error) => void
}

export interface UdpServer {
  readonly port: number
  send(answer: Buffer, to: DatagramSource): void
  close(): Promise<void>
}

/** Room for bursts while other work holds the process. The kernel may grant less. */
const SOCKET_BUFFER_BYTES = 4 * 1024 * 1024

/** Addresses come from the kernel as numbers. Node's own look-up would put each answer off to a later tick. */
const noLookup: NonNullable<SocketOptions['lookup']> = (hostname, _options, callback) =>
  callback(null, hostname, isIP(hostname))

/** Opens the socket. Rejects with the system's error (`code` EADDRINUSE, EADDRNOTAVAIL, EACCES …). */
export async function openUdp(init: UdpServerInit): Promise<UdpServer> {
  const { listen, reusePort } = init
  const type = listen.address.family === 4 ? 'udp4' : 'udp6'
  const socket = createSocket({ type, reusePort, ipv6Only: type === 'udp6', lookup: noLookup })
  await bind(socket, listen)
  enlargeBuffers(socket)
  socket.on('error', init.onError)
  const send = (answer: Buffer, to: DatagramSource): void => {
    try {
      socket.send(answer, to.port, to.address)
    } catch (error) {
      init.onError(error as Error)
    }
  }
  socket.on('message', (query, source) => {
    const answer = init.onQuery(query, source)
    if (answer !== undefined) send(answer, source)
  })
  return { port: socket.address().port, send, close: () => new Promise((resolve) => socket.close(() => resolve())) }
}

function bind(socket: Socket, listen: SocketAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => {
      socket.close()
      reject(error)
    }
    socket.once('error', onError)
    socket.bind({ address: formatAddress(listen.address), port: listen.port }, () => {
      socket.off('error', onError)
      resolve()
    })
  })
}

function enlargeBuffers(socket: Socket): void {
  try {
    socket.setRecvBufferSize(SOCKET_BUFFER_BYTES)
    socket.setSendBufferSize(SOCKET_BUFFER_BYTES)
  } catch {
    // A smaller buffer works too.
  }
}
