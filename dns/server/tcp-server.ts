/**
 * DNS over TCP (RFC 7766): two octets of length before each message, several queries on one connection, answers in the
 * order in which they are ready. Connections, buffers and idle times are limited.
 */
import { type Server, type Socket, createServer } from 'node:net'
import { formatAddress } from '../../model/addresses/addresses.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { DropReason, SocketAddress } from '../config/config.ts'
import type { Clients } from '../clients/clients.ts'
import type { Pipeline } from './pipeline.ts'

export interface TcpServerInit {
  readonly clock: Clock
  readonly listen: SocketAddress
  readonly reusePort: boolean
  readonly maxConnections: number
  readonly idleTimeoutMs: number
  readonly pipeline: Pick<Pipeline, 'answer'>
  readonly clients: Pick<Clients, 'ofText'>
  /** Called for each connection that is closed to make room, and for errors of the listening socket. */
  readonly onDropped: (reason: DropReason, error?: Error) => void
}

export interface TcpServer {
  readonly port: number
  /**
   * Connections still receive what was written to them. A connection that does not read it within LAST_WRITE_MS is
   * closed.
   */
  close(): Promise<void>
}

/** Queries of one connection that wait for an upstream. At this number, reading stops. */
const MAX_WAITING = 64
/** A client that reads its connection has its answer by then. */
const LAST_WRITE_MS = 500
/** Longer than any query that gets more than an error here. */
const MAX_QUERY_LENGTH = 4096

/** Opens the socket. Rejects with the error of the system. */
export async function openTcp(init: TcpServerInit): Promise<TcpServer> {
  /** Longest idle first: each whole query moves its connection to the end. */
  const connections = new Set<Socket>()
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (socket) => {
    if (connections.size >= init.maxConnections) {
      const [quietest] = connections
      quietest?.destroy()
      if (quietest !== undefined) connections.delete(quietest)
      init.onDropped('connection_limit')
    }
    connections.add(socket)
    socket.on('close', () => connections.delete(socket))
    serveConnection(socket, init, () => {
      connections.delete(socket)
      connections.add(socket)
    })
  })
  await listenOn(server, init)
  server.on('error', (error) => init.onDropped('socket_error', error))
  const address = server.address()
  return {
    port: typeof address === 'object' && address !== null ? address.port : init.listen.port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        const slow = [...connections].filter((socket) => socket.writableLength > 0)
        for (const socket of connections) socket.destroySoon()
        if (slow.length === 0) return
        const cancel = init.clock.setTimer(LAST_WRITE_MS, () => slow.forEach((socket) => socket.destroy()))
        server.once('close', cancel)
      }),
  }
}

function listenOn(server: Server, { listen, reusePort }: TcpServerInit): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    const ipv6Only = listen.address.family === 6
    server.listen({ host: formatAddress(listen.address), port: listen.port, reusePort, ipv6Only }, () => {
      server.off('error', reject)
      resolve()
    })
  })
}

/** Reads queries from one connection until it ends, is idle for too long or fails. */
function serveConnection(socket: Socket, init: TcpServerInit, onWholeQuery: () => void): void {
  const client = init.clients.ofText(socket.remoteAddress ?? '')
  let pending: Buffer = Buffer.alloc(0)
  let waiting = 0
  let ended = false
  const touch = endWhenQuiet(socket, init)
  socket.on('error', () => socket.destroy())

  const send = (answer: Buffer | undefined): void => {
    if (answer === undefined || socket.destroyed) return
    const length = Buffer.allocUnsafe(2)
    length.writeUInt16BE(answer.length, 0)
    socket.cork()
    socket.write(length)
    socket.write(answer)
    socket.uncork()
  }
  const isFull = (): boolean => waiting >= MAX_WAITING || socket.writableNeedDrain
  const finish = (): void => {
    if (ended && waiting === 0 && !socket.destroyed) socket.end()
  }
  const proceed = (): void => {
    // A late answer leads here too, even if the connection has closed. Queries that were read must not be asked then.
    if (socket.destroyed) return
    let at = 0
    while (!isFull() && pending.length - at >= 2) {
      const end = at + 2 + pending.readUInt16BE(at)
      if (end - at - 2 > MAX_QUERY_LENGTH) {
        socket.destroy()
        return
      }
      if (pending.length < end) break
      onWholeQuery()
      const reply = init.pipeline.answer(pending.subarray(at + 2, end), 'tcp', client)
      at = end
      if (!(reply instanceof Promise)) {
        send(reply)
        continue
      }
      waiting += 1
      void reply.then((late) => {
        waiting -= 1
        touch()
        send(late)
        proceed()
      })
    }
    pending = pending.subarray(at)
    if (isFull()) socket.pause()
    else socket.resume()
    finish()
  }
  socket.on('data', (chunk: Buffer) => {
    touch()
    pending = pending.length === 0 ? chunk : Buffer.concat([pending, chunk])
    proceed()
  })
  socket.on('drain', () => {
    touch()
    proceed()
  })
  socket.on('end', () => {
    ended = true
    finish()
  })
}

/**
 * Closes a connection on which nothing has moved for the idle timeout, such as one whose client never reads its
 * answers. Returns the function to call when data has moved.
 */
function endWhenQuiet(socket: Socket, { clock, idleTimeoutMs }: TcpServerInit): () => void {
  let moved = clock.monotonic()
  const look = (): void => {
    const left = moved + idleTimeoutMs - clock.monotonic()
    if (left <= 0) socket.destroy()
    else cancel = clock.setTimer(left, look)
  }
  let cancel = clock.setTimer(idleTimeoutMs, look)
  socket.on('close', () => cancel())
  return () => {
    moved = clock.monotonic()
  }
}
