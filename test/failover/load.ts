/**
 * Traffic between two pods, as a program for a namespace: `serve` answers all of it; `call ADDRESS FLOWS PPS TCP MS
 * BYTES CHUNK` sends PPS datagrams of BYTES a second over FLOWS sockets, and CHUNK bytes each MS over each of TCP
 * connections, until its input ends.
 * A line on standard input makes it print what it has seen since the last one, as a line of JSON (Seen).
 */
import { createSocket } from 'node:dgram'
import { type Socket, connect, createServer } from 'node:net'
import { createInterface } from 'node:readline'

const PORT = 9000
const TICK_MS = 4

export interface Seen {
  /** The longest time without an answer to a flow's datagrams, beyond the interval between two of them. */
  readonly longestGapMs: number
  readonly sent: number
  readonly answered: number
  /** How many connections have ended since the start. */
  readonly broken: number
  /** The longest time that a connection went without an answer. */
  readonly longestTcpGapMs: number
}

const [mode, ...args] = process.argv.slice(2)
if (mode === 'serve') serve()
else if (mode === 'call') call(args[0] ?? '', args.slice(1).map(Number))

function serve(): void {
  createServer((socket) => {
    socket.setNoDelay(true)
    socket.on('error', () => undefined)
    socket.on('data', (data) => socket.write(data))
  }).listen(PORT, '0.0.0.0', () => console.log('serving'))
  const udp = createSocket('udp4')
  udp.on('message', (bytes, from) => udp.send(bytes, from.port, from.address))
  udp.bind(PORT)
}

interface Gap {
  lastMs: number
  longestMs: number
}

function touch(gap: Gap, nowMs: number): void {
  gap.longestMs = Math.max(gap.longestMs, nowMs - gap.lastMs)
  gap.lastMs = nowMs
}

function call(
  address: string,
  [flows = 0, pps = 0, connections = 0, byteMs = 0, size = 64, chunk = 1]: readonly number[],
): void {
  const counts = { sent: 0, answered: 0, broken: 0 }
  const udp = Array.from({ length: flows }, () => datagrams(address, size, () => (counts.answered += 1)))
  const tcp = Array.from({ length: connections }, (_, i) => {
    // The connections start at different moments, since all at once would overflow a socket's buffer.
    const firstMs = (byteMs * i) / connections
    return bytes(address, { firstMs, byteMs, chunk }, () => (counts.broken += 1))
  })
  const startMs = performance.now()
  let due = 0
  const tickMs = Math.max(TICK_MS, 500 / pps)
  setInterval(() => {
    const until = ((performance.now() - startMs) * pps) / 1000
    for (; due < until; due += 1) {
      udp[due % flows]?.send()
      counts.sent += 1
    }
  }, tickMs)
  const pauseMs = (1000 * flows) / pps
  const input = createInterface({ input: process.stdin })
  input.on('line', () => {
    const nowMs = performance.now()
    for (const { gap } of [...udp, ...tcp]) gap.longestMs = Math.max(gap.longestMs, nowMs - gap.lastMs)
    const seen: Seen = {
      longestGapMs: Math.max(0, ...udp.map(({ gap }) => gap.longestMs - pauseMs)),
      longestTcpGapMs: Math.max(0, ...tcp.map(({ gap }) => gap.longestMs - byteMs)),
      ...counts,
    }
    console.log(JSON.stringify(seen))
    for (const { gap } of [...udp, ...tcp]) Object.assign(gap, { lastMs: nowMs, longestMs: 0 })
    Object.assign(counts, { sent: 0, answered: 0 })
  })
  input.on('close', () => process.exit(0))
  console.log('calling')
}

interface Datagrams {
  readonly gap: Gap
  readonly send: () => void
}

function datagrams(address: string, size: number, onAnswer: () => void): Datagrams {
  const gap = { lastMs: performance.now(), longestMs: 0 }
  const socket = createSocket('udp4')
  socket.on('message', () => {
    onAnswer()
    touch(gap, performance.now())
  })
  socket.on('error', () => undefined)
  const bytes = Buffer.alloc(size)
  return { gap, send: () => socket.send(bytes, PORT, address, () => undefined) }
}

interface Writes {
  /** The delay of the first write after the start. */
  readonly firstMs: number
  readonly byteMs: number
  readonly chunk: number
}

function bytes(address: string, { firstMs, byteMs, chunk }: Writes, onBroken: () => void): { readonly gap: Gap } {
  const gap = { lastMs: performance.now() + firstMs, longestMs: 0 }
  const socket: Socket = connect(PORT, address)
  socket.setNoDelay(true)
  socket.on('error', () => undefined)
  socket.on('data', () => touch(gap, performance.now()))
  const sent = Buffer.alloc(chunk, 'x')
  let sending: NodeJS.Timeout | undefined
  const first = setTimeout(() => (sending = setInterval(() => socket.write(sent), byteMs)), firstMs)
  socket.on('close', () => {
    clearTimeout(first)
    clearInterval(sending)
    onBroken()
  })
  return { gap }
}
