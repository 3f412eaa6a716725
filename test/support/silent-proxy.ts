/** A TCP proxy that can go silent: connections stay open, the system answers for them, and nothing comes through. */
import { type AddressInfo, type Server, type Socket, connect, createServer } from 'node:net'
import type { Test } from 'tap'

export interface SilentProxy {
  readonly port: number
  /** What is open now passes nothing any more, for ever. New connections pass, unless `all`. */
  silence(all?: boolean): void
  /** What the target answers on connections that are open now is lost; what it is sent still comes to it. */
  loseAnswers(): void
  /** New connections pass again. */
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

/** A target that is a function is asked for each connection. */
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
        // Read and thrown away: the other side's system sees a peer that acknowledges.
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
