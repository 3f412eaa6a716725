/** New queries go to the other socket of the port, and waiting ones stay. With a single socket, nothing changes. */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { type Server, connect, createServer } from 'node:net'
import t, { type Test } from 'tap'
import { OWN_CLIENTS } from '../pipeline-fixture.ts'
import { openPortGroup } from '../../../dns/server/port-group.ts'
import { openMmsg } from '../../../dns/server/datagram-slots.ts'
import { type UdpServer, openUdp } from '../../../dns/server/udp-server.ts'
import { parseAddress } from '../../../model/values/ip.ts'
import { eventually } from '../../support/eventually.ts'

const group = await openPortGroup()
if (group === undefined) throw new Error('this Node has no node:ffi: nothing would be passed on')
const mmsg = await openMmsg()

interface Heard {
  readonly server: UdpServer
  readonly texts: string[]
}

async function start(t: Test, host: string, port: number): Promise<Heard> {
  const texts: string[] = []
  const server = await openUdp({
    listen: { address: parseAddress(host), port },
    reusePort: true,
    mmsg,
    clients: OWN_CLIENTS,
    pipeline: {
      answer: (query) => {
        texts.push(query.toString())
        return undefined
      },
    },
    onDropped: (reason, error) => t.fail(error?.message ?? reason),
  })
  return { server, texts }
}

/** Sends from many ports, which the kernel would distribute over both sockets. */
async function send(host: string, port: number, texts: readonly string[]): Promise<void> {
  for (const text of texts) {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4')
    socket.connect(port, host === '0.0.0.0' ? '127.0.0.1' : host)
    await once(socket, 'connect')
    await new Promise((resolve) => socket.send(text, resolve))
    socket.close()
  }
}

const many = (name: string): string[] => Array.from({ length: 40 }, (_, i) => `${name} ${i}`)

for (const host of ['127.0.0.1', '::1', '0.0.0.0', '::']) {
  t.test(`${host}: the elder passes on to the younger, from one to the next`, async (t) => {
    let elder = await start(t, host, 0)
    const { port } = elder.server
    const at = { address: parseAddress(host), port }
    for (const round of ['first', 'second', 'third']) {
      t.equal(group.passOn(at), 1)
      const alone = many(`${round} alone`)
      await send(host, port, alone)
      await eventually(() => elder.texts.length === 40, { say: 'alone it gets everything' })
      elder.texts.length = 0
      const younger = await start(t, host, port)
      t.equal(group.passOn(at), 2, 'both sockets are of this process')
      await send(host, port, many(round))
      await eventually(() => younger.texts.length === 40)
      t.same(elder.texts, [])
      await elder.server.close()
      await send(host, port, many(`${round} after`))
      await eventually(() => younger.texts.length === 80)
      younger.texts.length = 0
      elder = younger
    }
    await elder.server.close()
  })
}

t.test('what waits at the socket is answered before it is closed', async (t) => {
  const { server, texts } = await start(t, '127.0.0.1', 0)
  const socket = createSocket('udp4')
  socket.connect(server.port, '127.0.0.1')
  await once(socket, 'connect')
  const sent = Promise.all(many('waits').map((text) => new Promise((resolve) => socket.send(text, resolve))))
  // The sends happen at once, and no turn of the event loop comes between them and the close.
  await Promise.all([server.close(), sent])
  t.same(texts, many('waits'))
  socket.close()
})

async function listen(port: number, accepted: () => void): Promise<Server> {
  const server = createServer((socket) => {
    accepted()
    socket.end()
  }).listen({ host: '127.0.0.1', port, reusePort: true })
  await once(server, 'listening')
  return server
}

t.test('TCP: new connections go to the younger', async (t) => {
  let elder = 0
  let younger = 0
  const first = await listen(0, () => (elder += 1))
  const place = first.address()
  const port = typeof place === 'object' && place !== null ? place.port : 0
  const second = await listen(port, () => (younger += 1))
  t.equal(group.passOn({ address: parseAddress('127.0.0.1'), port }), 2)
  for (let i = 0; i < 40; i += 1) await once(connect(port, '127.0.0.1').resume(), 'close')
  t.same([elder, younger], [0, 40])
  first.close()
  second.close()
})

t.test('ports of others are left alone', (t) => {
  t.equal(group.passOn({ address: parseAddress('127.0.0.1'), port: 1 }), 0)
  t.end()
})
