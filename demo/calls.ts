/**
 * Calls that stay open, run inside a pod. `serve PORT` sends back what comes; `call ADDRESS PORT COUNT` keeps COUNT TCP
 * connections, sends a byte over each every 20 ms, and times the answers. It says `ready` once each connection was
 * answered. At SIGTERM it waits for the answers that are owed, and prints what it has seen.
 */
import { type Socket, connect, createServer } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

export interface CallsSeen {
  readonly connections: number
  /** Connections that ended, or have answers to come after all patience. */
  readonly broken: number
  readonly answers: number
  /** The longest time from a byte to its answer. */
  readonly longestMs: number
}

const EVERY_MS = 20
const PATIENCE_MS = 10_000

class Call {
  readonly #socket: Socket
  /** When each byte was sent that has no answer yet, the oldest first. */
  readonly #owed: number[] = []
  answers = 0
  longestMs = 0
  ended = false

  constructor(address: string, port: number) {
    this.#socket = connect({ host: address, port, noDelay: true })
    this.#socket.on('data', (bytes) => this.#answered(bytes.length))
    this.#socket.on('error', () => (this.ended = true))
    this.#socket.on('close', () => (this.ended = true))
  }

  ask(): void {
    if (this.ended || this.#socket.connecting) return
    this.#owed.push(performance.now())
    this.#socket.write('.')
  }

  get isOwed(): boolean {
    return this.#owed.length > 0
  }

  #answered(count: number): void {
    const nowMs = performance.now()
    for (const sentMs of this.#owed.splice(0, count)) this.longestMs = Math.max(this.longestMs, nowMs - sentMs)
    this.answers += count
  }
}

async function call(address: string, port: number, count: number): Promise<void> {
  const calls = Array.from({ length: count }, () => new Call(address, port))
  const asking = setInterval(() => calls.forEach((one) => one.ask()), EVERY_MS)
  const stop = new Promise((resolve) => process.once('SIGTERM', resolve))
  while (!calls.every(({ answers }) => answers > 0)) await pause(EVERY_MS)
  // How long a connection takes to be made is nobody's wait for an answer.
  for (const one of calls) one.longestMs = 0
  process.stdout.write('ready\n')
  await stop
  clearInterval(asking)
  const endMs = performance.now() + PATIENCE_MS
  while (calls.some((one) => one.isOwed && !one.ended) && performance.now() < endMs) await pause(EVERY_MS)
  const seen: CallsSeen = {
    connections: count,
    broken: calls.filter((one) => one.ended || one.isOwed).length,
    answers: calls.reduce((sum, { answers }) => sum + answers, 0),
    longestMs: Math.round(Math.max(...calls.map(({ longestMs }) => longestMs))),
  }
  process.stdout.write(`${JSON.stringify(seen)}\n`)
  process.exit()
}

function serve(port: number): void {
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on('error', () => undefined)
    socket.pipe(socket)
  })
  server.listen(port, () => process.stdout.write('ready\n'))
}

const [role, ...args] = process.argv.slice(2)
if (role === 'serve') serve(Number(args[0]))
else if (role === 'call') await call(args[0] ?? '', Number(args[1]), Number(args[2]))
