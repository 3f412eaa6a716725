/**
 * The listening side: accepts WebSockets of gateways over TLS 1.3, or plain ones behind a proxy that ends TLS. It bounds
 * what a stranger can hold: connections, time until it has proven itself, sizes.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { WebSocketServer, type WebSocket } from 'ws'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { SharedPort } from '../shared-port/shared-port.ts'
import { createServer, createServerOverTls } from '../http/http.ts'
import { listenAt } from '../runtime.ts'
import {
  type Frame,
  INSTANCE_HEADER,
  MAX_FRAME_BYTES,
  MAX_FRAME_PARTS,
  SUBPROTOCOL,
  decodeFrame,
  encodeFrame,
} from './frames.ts'

/** A connection from the relay's side. */
export interface PeerSocket {
  /**
   * Sends a frame. `onSent` is called when the system has taken it, or the connection has ended. A peer that leaves too
   * much unread is cut off.
   */
  send(frame: Frame | Buffer, onSent?: () => void): void
  /** Reads nothing for so long from now on: the peer has to wait. The longest of several times counts. */
  hold(ms: number): void
  /** Says by this code of WebSocket that it ends. */
  close(code: number): void
  /** Ends it at once. */
  end(): void
}

export interface PeerEvents {
  /** Undefined: octets that are no frame, or break the rules of WebSocket or the limits of this side. */
  readonly onFrame: (frame: Frame | undefined) => void
  /** A ping or a pong of WebSocket, which costs time too. */
  readonly onSign: () => void
  readonly onEnd: () => void
}

export interface DatagramServerInit {
  readonly clock: Clock
  readonly host: string
  readonly port: number
  /** Absent: plain, for a proxy on this machine that ends TLS. */
  readonly tls?: { readonly certificate: string; readonly key: string }
  /** Most open connections. Further ones are closed at once. */
  readonly maxConnections: number
  /** Another server of this process accepts, and hands over what is for this one. Absent: it listens itself. */
  readonly shared?: SharedPort | undefined
  /** makeInstance(). */
  readonly instance: string
  readonly onPeer: (peer: PeerSocket) => PeerEvents
}

export interface DatagramServer {
  readonly port: number
  /** Takes no more connections. Those that are open stay. */
  refuse(): void
  close(): Promise<void>
}

/** Until a client has sent its request, TLS included. */
const REQUEST_MS = 5000
/** A peer that has answered no ping for so long is gone, or does not read: what else it sends does not count. */
const SILENT_MS = 30_000
const PING_MS = 10_000
/** Requests of a client are one GET without a body. */
const MAX_HEADER_BYTES = 8192
/** Octets that wait for a peer to read, at most: far more than a queue of datagrams has in flight. */
const MAX_UNREAD_BYTES = 2 << 20

/** Resolves when it listens. Throws what listen() throws. */
export async function serveDatagrams(init: DatagramServerInit): Promise<DatagramServer> {
  const { clock, tls, maxConnections, shared } = init
  const options = {
    maxHeaderSize: MAX_HEADER_BYTES,
    noDelay: true,
    headersTimeout: REQUEST_MS,
    requestTimeout: REQUEST_MS,
    keepAliveTimeout: REQUEST_MS,
  }
  // A connection that stays for another request holds one of maxConnections.
  const plainAnswer = (_request: IncomingMessage, response: ServerResponse): void => {
    response.writeHead(426, { connection: 'close' }).end()
  }
  const server: Server =
    tls === undefined
      ? createServer({ ...options, connectionsCheckingInterval: 1000 }, plainAnswer)
      : createServerOverTls(
          {
            ...options,
            connectionsCheckingInterval: 1000,
            handshakeTimeout: REQUEST_MS,
            cert: tls.certificate,
            key: tls.key,
            minVersion: 'TLSv1.3',
            ALPNProtocols: ['http/1.1'],
          },
          plainAnswer,
        )
  server.maxConnections = maxConnections
  server.maxRequestsPerSocket = 1
  const sockets = new WebSocketServer({
    noServer: true,
    maxPayload: MAX_FRAME_BYTES,
    maxFragments: MAX_FRAME_PARTS,
    perMessageDeflate: false,
    clientTracking: true,
    handleProtocols: (protocols) => (protocols.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
  })
  sockets.on('headers', (headers) => headers.push(`${INSTANCE_HEADER}: ${init.instance}`))
  // Node looks for late requests only in servers that listen.
  const late = new WeakMap<Duplex, () => void>()
  server.on('secureConnection', (socket: Duplex) => {
    const cancel = clock.setTimer(REQUEST_MS, () => socket.destroy())
    late.set(socket, cancel)
    socket.once('close', cancel)
  })
  server.on('upgrade', (request: IncomingMessage, stream: Duplex, first: Buffer) => {
    // It stays, as a stream may fail at any time.
    stream.on('error', () => stream.destroy())
    if (!(request.headers['sec-websocket-protocol'] ?? '').split(/\s*,\s*/).includes(SUBPROTOCOL)) {
      // The stream is half-open: an end alone would leave it to the client when the connection closes.
      const cancel = clock.setTimer(REQUEST_MS, () => stream.destroy())
      stream.once('close', cancel)
      stream.end('HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Length: 0\r\n\r\n', () =>
        stream.destroy(),
      )
      return
    }
    late.get(stream)?.()
    sockets.handleUpgrade(request, stream, first, (socket) => accept(socket, clock, init.onPeer))
  })
  const open = new Set<Socket>()
  server.on('connection', (socket) => {
    open.add(socket)
    socket.once('close', () => open.delete(socket))
  })
  const stopSharing = shared?.serve((socket) => {
    // The server counts only those that it accepts itself.
    if (open.size >= maxConnections) {
      socket.destroy()
      return
    }
    socket.setNoDelay(true)
    server.emit('connection', socket)
  })
  if (stopSharing === undefined) await listenAt(server, init)
  server.on('error', () => undefined)
  return {
    port: stopSharing === undefined ? (server.address() as AddressInfo).port : init.port,
    refuse: () => {
      if (stopSharing === undefined) server.close()
      else stopSharing()
    },
    close: () =>
      new Promise((resolve) => {
        stopSharing?.()
        for (const socket of sockets.clients) socket.terminate()
        for (const socket of open) socket.destroy()
        if (server.listening) server.close(() => resolve())
        else resolve()
      }),
  }
}

function accept(socket: WebSocket, clock: Clock, onPeer: DatagramServerInit['onPeer']): void {
  let heardMs = clock.monotonic()
  const look = (): void => {
    if (clock.monotonic() - heardMs > SILENT_MS) {
      socket.terminate()
      return
    }
    socket.ping()
    cancel = clock.setTimer(PING_MS, look)
  }
  let cancel = clock.setTimer(PING_MS, look)
  let heldUntilMs = 0
  const release = (): void => {
    const leftMs = heldUntilMs - clock.monotonic()
    if (leftMs > 0) clock.setTimer(leftMs, release)
    else socket.resume()
  }
  socket.on('error', (error) => {
    if ('code' in error && typeof error.code === 'string' && error.code.startsWith('WS_ERR_')) takeFrame(undefined)
    socket.terminate()
  })
  const events = onPeer({
    send: (frame, onSent) => {
      socket.send(Buffer.isBuffer(frame) ? frame : encodeFrame(frame), { binary: true, compress: false }, onSent)
      if (socket.bufferedAmount > MAX_UNREAD_BYTES) socket.terminate()
    },
    hold: (ms) => {
      heldUntilMs = Math.max(heldUntilMs, clock.monotonic() + ms)
      if (socket.isPaused) return
      socket.pause()
      clock.setTimer(ms, release)
    },
    close: (code) => socket.close(code),
    end: () => socket.terminate(),
  })
  socket.on('pong', () => {
    heardMs = clock.monotonic()
    events.onSign()
  })
  socket.on('ping', () => events.onSign())
  // An error thrown in a listener would end the process, and with it the connections of all others.
  const takeFrame = (bytes: Buffer | undefined): void => {
    try {
      events.onFrame(bytes && decodeFrame(bytes))
    } catch {
      socket.terminate()
    }
  }
  socket.on('message', (data, isBinary) => takeFrame(isBinary ? (data as Buffer) : undefined))
  socket.once('close', () => {
    cancel()
    events.onEnd()
  })
}
