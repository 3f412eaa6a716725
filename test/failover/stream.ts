/**
 * Bulk traffic in one direction, as a program for a namespace: `receive` takes it; `send ADDRESS tcp` sends over one
 * connection as much as it takes, at most a megabyte a second; `send ADDRESS udp` sends 200 small datagrams a second
 * and expects no answer. A line on standard input makes the receiver print what it saw since the last one, as a line of
 * JSON (Received).
 */
import { createSocket } from 'node:dgram'
import { connect, createServer } from 'node:net'
import { createInterface } from 'node:readline'

const PORT = 9100
const TICK_MS = 20
const BYTES_A_TICK = 20_000
const DATAGRAM_MS = 5

export interface Received {
  /** The longest time in which nothing arrived, up to now if the stream has stopped. */
  readonly longestGapMs: number
  readonly bytes: number
  /** How long ago something last arrived. */
  readonly silentMs: number
}

const [mode, address = '', kind] = process.argv.slice(2)
if (mode === 'receive') receive()
else if (mode === 'send' && kind === 'tcp') sendBytes()
else if (mode === 'send' && kind === 'udp') sendDatagrams()

function receive(): void {
  let [lastMs, longestMs, bytes] = [performance.now(), 0, 0]
  const take = (chunk: Buffer): void => {
    const nowMs = performance.now()
    longestMs = Math.max(longestMs, nowMs - lastMs)
    lastMs = nowMs
    bytes += chunk.length
  }
  const udp = createSocket('udp4')
  udp.on('message', take)
  udp.bind(PORT)
  createServer((socket) => {
    socket.on('error', () => undefined)
    socket.on('data', take)
  }).listen(PORT, '0.0.0.0', () => console.log('receiving'))
  const input = createInterface({ input: process.stdin })
  input.on('line', () => {
    const silentMs = performance.now() - lastMs
    const seen: Received = { longestGapMs: Math.max(longestMs, silentMs), bytes, silentMs }
    console.log(JSON.stringify(seen))
    ;[longestMs, bytes] = [0, 0]
  })
  input.on('close', () => process.exit(0))
}

function sendBytes(): void {
  const socket = connect(PORT, address)
  socket.setNoDelay(true)
  socket.on('error', () => process.exit(1))
  socket.on('connect', () => console.log('sending'))
  const chunk = Buffer.alloc(BYTES_A_TICK)
  // Data that TCP holds back is not queued here, so what arrives after a gap was written after it.
  setInterval(() => {
    if (socket.writableLength < 4 * BYTES_A_TICK) socket.write(chunk)
  }, TICK_MS)
  process.stdin.on('end', () => process.exit(0)).resume()
}

function sendDatagrams(): void {
  const socket = createSocket('udp4')
  socket.on('error', () => undefined)
  const bytes = Buffer.alloc(64)
  setInterval(() => socket.send(bytes, PORT, address, () => undefined), DATAGRAM_MS)
  console.log('sending')
  process.stdin.on('end', () => process.exit(0)).resume()
}
