/**
 * The exchanges of a pod with others, as a program for a namespace: `serve` answers; `call ADDRESS…` prints one line of
 * JSON, an Exchange for each address. `call-open ADDRESS…` leaves out the closed port.
 */
import { createSocket } from 'node:dgram'
import { connect, createServer } from 'node:net'

const PORT = 9001
const CLOSED_PORT = 9
const TCP_BYTES = 60_000
/** More octets than any link carries in one packet, in both directions. */
const LONG_BYTES = 4000
/** Each exchange takes about one round trip; a busy machine gets much more time. */
const WAIT_MS = 4000

/** The result of each exchange: `ok`, or what came instead. */
export interface Exchange {
  readonly address: string
  /** A connection that transfers more than a window of bytes in both directions. */
  readonly tcp: string
  readonly udp: string
  /** A datagram of several fragments in both directions. */
  readonly fragments: string
  /** The ICMP error of a closed port. Absent: it was not tried. */
  readonly refused?: string
}

const [mode, ...addresses] = process.argv.slice(2)
if (mode === 'serve') serve()
else if (mode === 'call') console.log(JSON.stringify(await Promise.all(addresses.map(withRefusal))))
else if (mode === 'call-open') console.log(JSON.stringify(await Promise.all(addresses.map(exchange))))

function serve(): void {
  createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined)
    socket.pipe(socket)
  }).listen(PORT, '::', () => {
    const udp = createSocket('udp6')
    udp.on('message', (bytes, from) => udp.send(bytes, from.port, from.address))
    udp.bind(PORT, '::', () => console.log('serving'))
  })
}

async function exchange(address: string): Promise<Exchange> {
  const [tcp, udp, fragments] = await Promise.all([
    echoed(address),
    datagram(address, PORT, 64),
    datagram(address, PORT, LONG_BYTES),
  ])
  return { address, tcp, udp, fragments }
}

async function withRefusal(address: string): Promise<Exchange> {
  const [open, refused] = await Promise.all([exchange(address), datagram(address, CLOSED_PORT, 1)])
  return { ...open, refused: refused === 'ECONNREFUSED' ? 'ok' : refused }
}

function echoed(address: string): Promise<string> {
  return new Promise((resolve) => {
    let bytes = 0
    const socket = connect(PORT, address, () => socket.end(Buffer.alloc(TCP_BYTES)))
    socket.setTimeout(WAIT_MS, () => socket.destroy(new Error(`timeout after ${bytes} bytes`)))
    socket.on('data', (chunk) => (bytes += chunk.length))
    socket.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message))
    socket.on('close', () => resolve(bytes === TCP_BYTES ? 'ok' : `${bytes} bytes`))
  })
}

/**
 * Sends the datagram up to three times, because a long one may first have to discover the path MTU in each direction.
 * Over IPv6 only the sender fragments it, and a connected socket gets the error.
 */
async function datagram(address: string, port: number, length: number): Promise<string> {
  let came = ''
  for (const part of [4, 4, 1]) {
    came = await ask(address, port, length, WAIT_MS / part)
    if (came !== 'timeout' && came !== 'EMSGSIZE') break
  }
  return came
}

function ask(address: string, port: number, length: number, waitMs: number): Promise<string> {
  return new Promise((resolve) => {
    const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4')
    const end = (text: string): void => {
      clearTimeout(timer)
      resolve(text)
      socket
        .removeAllListeners()
        .on('error', () => undefined)
        .close()
    }
    const timer = setTimeout(() => end('timeout'), waitMs)
    socket.on('message', (bytes) => end(bytes.length === length ? 'ok' : `${bytes.length} bytes`))
    socket.on('error', (error: NodeJS.ErrnoException) => end(error.code ?? error.message))
    socket.connect(port, address, () => socket.send(Buffer.alloc(length)))
  })
}
