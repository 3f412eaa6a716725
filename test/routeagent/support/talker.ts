/**
 * A program for the namespaces of a test. It prints one JSON line for each answer.
 *
 *   serve ADDRESS:PORT…           answers each line over TCP and each datagram over UDP with "own address, caller's
 *                                 address"; IPv6 addresses are in brackets
 *   call tcp|udp ADDRESS PORT N [MS]
 *                                 makes N connections or sockets, one after the other, and waits for each answer for
 *                                 that long, or 3 s; prints a JSON array of answers
 *   hold ADDRESS PORT             keeps one TCP connection; sends a request for each line on standard input
 *   flood ADDRESS PORT N          sends N datagrams as fast as it can
 *   stream ADDRESS PORT           sends ten datagrams a second from one socket, and prints each answer, or error code
 */
import { createSocket } from 'node:dgram'
import { createServer, connect, isIPv6 } from 'node:net'
import { createInterface } from 'node:readline'

const [mode = '', ...args] = process.argv.slice(2)
if (mode === 'serve') for (const where of args) serve(where)
else if (mode === 'hold') hold(args[0] ?? '', Number(args[1]))
else if (mode === 'stream') stream(args[0] ?? '', Number(args[1]))
else if (mode === 'flood') flood(args[0] ?? '', Number(args[1]), Number(args[2]))
else {
  const ask = args[0] === 'udp' ? askUdp : askTcp
  const answers: string[] = []
  const waitMs = Number(args[4] ?? 3000)
  for (let i = 0; i < Number(args[3]); i++) answers.push(await ask(args[1] ?? '', Number(args[2]), waitMs))
  console.log(JSON.stringify(answers))
}

function serve(where: string): void {
  const colon = where.lastIndexOf(':')
  const [address, port] = [where.slice(0, colon).replaceAll(/[[\]]/g, ''), where.slice(colon + 1)]
  createServer((socket) => {
    socket.on('error', () => undefined)
    socket.on('data', () => socket.write(`${address} ${socket.remoteAddress}\n`))
  }).listen(Number(port), address, () => console.log(`serving ${where}`))
  const udp = createSocket(isIPv6(address) ? 'udp6' : 'udp4')
  udp.on('message', (_, from) => udp.send(`${address} ${from.address}`, from.port, from.address))
  udp.bind(Number(port), address)
}

function askTcp(address: string, port: number, waitMs: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port, timeout: waitMs }, () => socket.write('hello\n'))
    socket.on('data', (data) => {
      resolve(data.toString().trim())
      socket.destroy()
    })
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'error'))
    socket.on('timeout', () => {
      resolve('timeout')
      socket.destroy()
    })
  })
}

function askUdp(address: string, port: number, waitMs: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4')
    const finish = (answer: string): void => {
      clearTimeout(timer)
      resolve(answer)
      socket.close()
    }
    const timer = setTimeout(() => finish('timeout'), waitMs)
    socket.on('error', (error: NodeJS.ErrnoException) => finish(error.code ?? 'error'))
    socket.on('message', (message) => finish(message.toString()))
    // The socket is connected, so that an ICMP error reaches the program. 3,000 bytes do not fit into any packet here.
    socket.connect(port, address, () => socket.send(Buffer.alloc(3000)))
  })
}

function flood(address: string, port: number, count: number): void {
  const socket = createSocket('udp4')
  let left = count
  const sent = (): void => {
    left -= 1
    if (left === 0) socket.close()
  }
  for (let i = 0; i < count; i++) socket.send('hello', port, address, sent)
}

/** Never pauses, so that the kernel never forgets the flow by itself. */
function stream(address: string, port: number): void {
  const socket = createSocket(isIPv6(address) ? 'udp6' : 'udp4')
  const say = (what: string | undefined): void => console.log(what ?? 'error')
  socket.on('error', (error: NodeJS.ErrnoException) => say(error.code))
  socket.on('message', (message) => say(message.toString().split(' ')[0]))
  const send = (): void =>
    socket.send('hello', (error: NodeJS.ErrnoException | null) => {
      if (error !== null) say(error.code)
    })
  socket.connect(port, address, () => setInterval(send, 100))
}

function hold(address: string, port: number): void {
  const socket = connect(port, address)
  socket.on('data', (data) => console.log(data.toString().trim()))
  socket.on('error', (error: NodeJS.ErrnoException) => console.log(error.code))
  createInterface({ input: process.stdin }).on('line', (line) => socket.write(`${line}\n`))
}
