/**
 * Passes datagrams on later, as a program for a namespace: `DELAY JITTER PORT=ADDRESS:PORT …`. What comes to a port is
 * sent from there to the address, after DELAY milliseconds, JITTER more or less: so some overtake others.
 */
import { createSocket } from 'node:dgram'
import { constants, setPriority } from 'node:os'
import { setTimeout } from 'node:timers'

const [delay = NaN, jitter = NaN] = process.argv.slice(2, 4).map(Number)
/** As much as a fast path has on its way in that time; what is beyond is lost, as in a router. */
const MAX_WAITING = 50_000

// It stands for a wire, which waits for no processor: behind other programs its delays were seconds.
setPriority(constants.priority.PRIORITY_HIGHEST)

let waiting = 0
const ways = process.argv.slice(4).map((text) => /^(\d+)=([\d.]+):(\d+)$/.exec(text)?.slice(1) ?? [])
const bound = ways.map(([port, address, toPort]) => {
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
  return new Promise<void>((resolve) => socket.bind(Number(port), resolve))
})
await Promise.all(bound)
console.log('ready')
