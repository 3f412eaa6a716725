/** Servers on every address: IPv4 alone, both families, IPv6 alone. */
import { EventEmitter, once } from 'node:events'
import { type ListenOptions, type Server, connect, createServer } from 'node:net'
import { networkInterfaces } from 'node:os'
import t from 'tap'
import { EVERY_ADDRESS, listenAt } from '../../runtime/listen.ts'

/** A server on a kernel that refuses the hosts of `refuses`, with that code. Once it listens, it keeps its host. */
class RefusingServer extends EventEmitter {
  readonly #refuses: ReadonlyMap<string, string>
  host: string | undefined

  constructor(refuses: Readonly<Record<string, string>>) {
    super()
    this.#refuses = new Map(Object.entries(refuses))
  }

  listen({ host = '' }: ListenOptions, done: () => void): this {
    // As net.Server: the callback of a call that failed stays subscribed.
    this.once('listening', done)
    const code = this.#refuses.get(host)
    setImmediate(() => {
      if (code === undefined) {
        this.host = host
        this.emit('listening')
      } else this.emit('error', Object.assign(new Error(code), { code }))
    })
    return this
  }
}

t.test('a kernel without IPv6: every address is every IPv4 address', async (t) => {
  for (const code of ['EAFNOSUPPORT', 'EADDRNOTAVAIL']) {
    const server = new RefusingServer({ '::': code })
    await listenAt(server as unknown as Server, { host: EVERY_ADDRESS, port: 0 })
    t.equal(server.host, '0.0.0.0', code)
    t.equal(server.listenerCount('error'), 0)
  }
})

t.test('other errors and other addresses stay as they are', async (t) => {
  const rows: readonly (readonly [host: string, refuses: Readonly<Record<string, string>>, code: string])[] = [
    ['::', { '::': 'EADDRINUSE' }, 'EADDRINUSE'],
    ['::', { '::': 'EAFNOSUPPORT', '0.0.0.0': 'EADDRINUSE' }, 'EADDRINUSE'],
    ['fd00::1', { 'fd00::1': 'EAFNOSUPPORT' }, 'EAFNOSUPPORT'],
    ['::1', { '::1': 'EADDRNOTAVAIL' }, 'EADDRNOTAVAIL'],
  ]
  for (const [host, refuses, code] of rows) {
    const server = new RefusingServer(refuses)
    await t.rejects(listenAt(server as unknown as Server, { host, port: 0 }), { code }, host)
    t.equal(server.host, undefined)
  }
})

const hasIpv6 = Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === '::1'))

t.test('every address takes calls of both families', async (t) => {
  const server = createServer((socket) => socket.end())
  t.teardown(() => server.close())
  await listenAt(server, { host: EVERY_ADDRESS, port: 0 })
  const { port } = server.address() as { readonly port: number }
  for (const host of ['127.0.0.1', ...(hasIpv6 ? ['::1'] : [])]) {
    const socket = connect(port, host)
    await once(socket, 'connect')
    socket.destroy()
    t.pass(host)
  }
})
