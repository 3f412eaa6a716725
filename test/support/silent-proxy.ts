/**
 * A TCP proxy that can become silent: connections stay open, the system acknowledges their data, and none of it is
 * passed on.
 */
import { type AddressInfo, type Server, type Socket, connect, createServer } from 'node:net'
import type { Test } from 'tap'

export interface SilentProxy {
  readonly port: number
  /** Connections that are open now pass no data any more. New connections pass data, unless `all`. */
  silence(all?: boolean): void
  /** The target's answers on connections that are open now are lost; the data to the target still arrives. */
  loseAnswers(): void
  /** New connections pass data again. */
  listen(): void
  /** Ends all connections. */
  cut(): void
  /** Connections accepted so far. */
  accepted(): number
}

interface Target {
  readonly host: string
  readonly port: number
}

/** If the target is a function, it is called for each connection. */
export async function silentProxy(t: Test, target: Target | (() => Target)): Promise<SilentProxy> {
  const pairs = new Set<readonly [Socket, Socket]>()
  let deaf = false
  let accepted = 0
  const server: Server = createServer((inside) => {
    accepted += 1
    const outside = connect(typeof target === 'function' ? target() : target)
    const pair = [inside, outside] as const
    pairs.add(pair)
    for (const [from, to] of [pair, [outside, inside] as const]) {
      from.on('error', () => undefined)
      from.once('close', () => {
        to.destroy()
        pairs.delete(pair)
      })
    }
    if (deaf) return
    inside.pipe(outside)
    outside.pipe(inside)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const cut = (): void => pairs.forEach((pair) => pair.forEach((socket) => socket.destroy()))
  t.teardown(() => {
    cut()
    server.close()
  })
  return {
    port: (server.address() as AddressInfo).port,
    silence(all = false) {
      deaf = all
      for (const [inside, outside] of pairs) {
        inside.unpipe()
        outside.unpipe()
        // The data is read and dropped, so that the other side's system sees a peer that acknowledges.
        inside.on('data', () => undefined)
        outside.on('data', () => undefined)
      }
    },
    loseAnswers() {
      for (const [inside, outside] of pairs) {
        outside.unpipe(inside)
        outside.on('data', () => undefined)
      }
    },
    listen: () => {
      deaf = false
    },
    cut,
    accepted: () => accepted,
  }
}
