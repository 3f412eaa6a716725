/**
 * Forwards datagrams after a delay, as a program for a namespace: `DELAY JITTER [ADDRESS:]PORT=ADDRESS:PORT …`. A
 * datagram to a port goes on from that port to the address after DELAY milliseconds, plus or minus JITTER, so that some
 * overtake others.
 */
import { createSocket } from 'node:dgram'
import { constants, setPriority } from 'node:os'
import { setTimeout } from 'node:timers'

const [delay = NaN, jitter = NaN] = process.argv.slice(2, 4).map(Number)
/** As many datagrams as a fast path has in flight in that time; more are lost, as in a router. */
const MAX_WAITING = 50_000

// The relay stands for a wire, which never waits for a processor. At normal priority its delays were seconds.
setPriority(constants.priority.PRIORITY_HIGHEST)

let waiting = 0
const ways = process.argv.slice(4).map((text) => /^(?:([\d.]+):)?(\d+)=([\d.]+):(\d+)$/.exec(text)?.slice(1) ?? [])
const bound = ways.map(([own = '0.0.0.0', port, address, toPort]) => {
  const socket = createSocket({ type: 'udp4', recvBufferSize: 4 << 20, sendBufferSize: 4 << 20 })
  socket.on('error', () => undefined)
  socket.on('message', (bytes) => {
    if (waiting >= MAX_WAITING) return
    waiting += 1
    setTimeout(
      () => {
        waiting -= 1
        socket.send(bytes, Number(toPort), address)
      },
      delay - jitter + 2 * jitter * Math.random(),
    )
  })
  return new Promise<void>((resolve) => socket.bind(Number(port), own, resolve))
})
await Promise.all(bound)
console.log('ready')
