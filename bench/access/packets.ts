/**
 * The programs of bench/access.ts in pods.
 *
 *   receive PORT               prints the time of arrival of each datagram, in ms; accepts and closes TCP connections
 *   send ADDRESS PORT          sends a datagram each ms, from one socket
 *   connect ADDRESS PORT N     makes N connections one after the other, and prints the ns that each took, as JSON
 */
import { createSocket } from 'node:dgram'
import { connect, createServer } from 'node:net'

const [mode = '', ...args] = process.argv.slice(2)
if (mode === 'receive') receive(Number(args[0]))
else if (mode === 'send') send(args[0] ?? '', Number(args[1]))
else {
  const times: number[] = []
  for (let i = 0; i < Number(args[2]); i += 1) times.push(await connected(args[0] ?? '', Number(args[1])))
  process.stdout.write(`${JSON.stringify(times)}\n`)
}

function receive(port: number): void {
  const socket = createSocket('udp4')
  socket.on('message', () => process.stdout.write(`${(performance.timeOrigin + performance.now()).toFixed(2)}\n`))
  socket.bind(port)
  createServer((caller) => caller.destroy()).listen(port)
}

function send(address: string, port: number): void {
  const socket = createSocket('udp4')
  socket.on('error', () => undefined)
  setInterval(() => socket.send('x', port, address), 1)
}

function connected(address: string, port: number): Promise<number> {
  const begun = process.hrtime.bigint()
  return new Promise((resolve, reject) => {
    const socket = connect(port, address, () => {
      resolve(Number(process.hrtime.bigint() - begun))
      socket.resetAndDestroy()
    })
    socket.on('error', reject)
  })
}
