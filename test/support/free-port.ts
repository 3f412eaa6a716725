/** Ports for servers of tests that must be known before the server starts, or stay the same while it is away. */
import { randomInt } from 'node:crypto'
import { createServer } from 'node:net'

/**
 * The ports are below the range from which Linux assigns arbitrary ports (ip_local_port_range), so no other program
 * gets one of them by chance.
 */
const LOWEST = 10_000
const END = 30_000
const TRIES = 100

/** A TCP port that is free on this address. */
export async function freePort(address = '127.0.0.1'): Promise<number> {
  for (let left = TRIES; ; left -= 1) {
    try {
      const port = randomInt(LOWEST, END)
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
