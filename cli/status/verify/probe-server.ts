/**
 * The server of probe pods: answers calls of its own run over TCP and UDP, and nothing else. It never answers with more
 * than it was sent, and each connection has limits of size and time.
 */
import { type Socket as UdpSocket, createSocket } from 'node:dgram'
import { once } from 'node:events'
import { type Server, type Socket, createServer } from 'node:net'
import { type Clock, SystemClock } from '../../../reconcile/reconcile.ts'
import {
  type HelloAnswer,
  MOST_LINE,
  type TcpRequest,
  echoOf,
  helloDatagram,
  helloText,
  HELLO_DATAGRAM,
  parseDatagram,
  parseTcpRequest,
} from './probe-wire.ts'

export interface ProbeServerInit {
  readonly run: string
  /** The id of this cluster. */
  readonly member: string
  readonly pod: string
  /** Ports of TCP. The first one is also the port of UDP. */
  readonly ports: readonly number[]
  /** `::` and all of IPv4 if undefined, or all of IPv4 on a machine without IPv6. */
  readonly host?: string
  readonly clock?: Clock
}

export interface ProbeServer {
  /** The ports in use: a port 0 was replaced by a free one. */
  readonly ports: readonly number[]
  close(): Promise<void>
}

const MOST_CONNECTIONS = 256
/** A connection must have sent its request by then. */
const REQUEST_MS = 5000
/** No call takes longer (MOST_SECONDS). */
const LIFE_MS = 90_000

/** Rejects if a port is in use. */
export async function serveProbe(init: ProbeServerInit): Promise<ProbeServer> {
  const servers: Server[] = []
  const sockets = new Set<Socket>()
  let udp: UdpSocket | undefined
  const close = async (): Promise<void> => {
    for (const socket of sockets) socket.destroy()
    await Promise.all(servers.filter(({ listening }) => listening).map((one) => new Promise((end) => one.close(end))))
    const datagrams = udp
    if (datagrams !== undefined) await new Promise<void>((end) => datagrams.close(end))
  }
  try {
    for (const port of init.ports) servers.push(await listenTcp(port, init, sockets))
    const ports = servers.map((server) => (server.address() as { port: number }).port)
    udp = await listenUdp(ports[0] ?? 0, init)
    return { ports, close }
  } catch (error) {
    await close()
    throw error
  }
}

async function listenTcp(port: number, init: ProbeServerInit, sockets: Set<Socket>): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    serveConnection(socket, init)
  })
  server.maxConnections = MOST_CONNECTIONS
  server.listen({ port, ...(init.host === undefined ? {} : { host: init.host }) })
  await once(server, 'listening')
  return server
}

function serveConnection(socket: Socket, init: ProbeServerInit): void {
  const { clock = new SystemClock() } = init
  let cancel = clock.setTimer(REQUEST_MS, () => socket.destroy())
  socket.once('close', () => cancel())
  socket.on('error', () => socket.destroy())
  let head = Buffer.alloc(0)
  const read = (part: Buffer): void => {
    head = Buffer.concat([head, part])
    const end = head.indexOf(0x0a)
    if (end < 0 && head.length <= MOST_LINE) return
    socket.off('data', read)
    const request = end < 0 ? undefined : parseTcpRequest(head.subarray(0, end).toString('latin1'), init.run)
    cancel()
    cancel = clock.setTimer(LIFE_MS, () => socket.destroy())
    if (request === undefined) socket.destroy()
    else answer(socket, request, head.subarray(end + 1), init)
  }
  socket.on('data', read)
}

function answer(socket: Socket, request: TcpRequest, rest: Buffer, init: ProbeServerInit): void {
  switch (request.op) {
    case 'hello':
      socket.end(`${helloText(init.run, answerTo(init, socket.remoteAddress))}\n`)
      return
    case 'ping':
      echo(socket, rest, Number.MAX_SAFE_INTEGER)
      return
    case 'bulk':
      echo(socket, rest, request.bytes)
      return
    case 'sink':
      count(socket, rest)
  }
}

/** Sends back what arrives, at most `left` octets. */
function echo(socket: Socket, rest: Buffer, most: number): void {
  let left = most
  const give = (part: Buffer): void => {
    if (part.length === 0) return
    const given = part.subarray(0, left)
    left -= given.length
    // What is not read stays in the buffers of both kernels and holds the sender back.
    if (!socket.write(given)) {
      socket.pause()
      socket.once('drain', () => socket.resume())
    }
    if (left === 0) socket.end()
  }
  socket.on('data', give)
  socket.on('end', () => socket.end())
  give(rest)
}

/** Reads until the client has sent all, and answers how much it was. */
function count(socket: Socket, rest: Buffer): void {
  let received = rest.length
  socket.on('data', (part: Buffer) => (received += part.length))
  socket.on('end', () => socket.end(`${JSON.stringify({ received })}\n`))
}

async function listenUdp(port: number, init: ProbeServerInit): Promise<UdpSocket> {
  const { host, run } = init
  const socket = createSocket(host === undefined || host.includes(':') ? 'udp6' : 'udp4')
  try {
    socket.bind(port, host)
    await once(socket, 'listening')
  } catch (error) {
    if (host !== undefined || (error as NodeJS.ErrnoException).code !== 'EAFNOSUPPORT') throw error
    return listenUdp(port, { ...init, host: '0.0.0.0' })
  }
  socket.on('error', () => undefined)
  socket.on('message', (data, from) => {
    const asked = parseDatagram(data, run, 'asked')
    if (asked === undefined) return
    // The answer must not be longer than the request, or a spoofed source could be flooded.
    if (asked.op === 'hello' && data.length < HELLO_DATAGRAM) return
    const said = asked.op === 'echo' ? echoOf(data) : helloDatagram(run, asked.sequence, answerTo(init, from.address))
    socket.send(said, from.port, from.address, () => undefined)
  })
  return socket
}

function answerTo({ member, pod }: ProbeServerInit, address = ''): HelloAnswer {
  return { member, pod, from: address.replace(/^::ffff:(?=\d+\.)/, '').replace(/%.*/, '') }
}
