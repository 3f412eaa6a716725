/** Ports for servers of tests that must be known before the server starts, or stay the same while it is away. */
import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'

/**
 * The ports are below the range from which Linux assigns arbitrary ports (ip_local_port_range), so no other program
 * gets one of them by chance. Processes of tests that run at once have parts of their own, and each takes its ports in
 * turn: a port is free for a moment between this look and its server.
 */
const LOWEST = 10_000
const PARTS = 200
const PORTS = 100
const TRIES = PORTS
let next = randomInt(PORTS)

/** A TCP port that is free on this address. */
export async function freePort(address = '127.0.0.1'): Promise<number> {
  for (let left = TRIES; ; left -= 1) {
    try {
      next = (next + 1) % PORTS
      const port = LOWEST + (process.pid % PARTS) * PORTS + next
      await listenOnce(port, address)
      return port
    } catch (error) {
      if (left === 0 || (error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    }
  }
}

async function listenOnce(port: number, address: string): Promise<void> {
  const server = createServer()
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, address, resolve)
  })
  await new Promise((resolve) => server.close(resolve))
}
