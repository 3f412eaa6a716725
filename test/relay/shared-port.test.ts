/** A broker and a relay on one TCP port: each gets its clients, and strangers for one do not delay the other. */
import { once } from 'node:events'
import { type AddressInfo, type Socket, connect, createServer } from 'node:net'
import { connect as connectTls } from 'node:tls'
import t, { type Test } from 'tap'
import { SharedPort } from '../../runtime/shared-port/shared-port.ts'
import { eventually } from '../support/eventually.ts'
import { authority as brokerAuthority, member, startSite } from '../protocol/site.ts'
import { connectProxy } from '../support/connect-proxy.ts'
import { parseProxy } from '../../runtime/proxy/proxy.ts'
import { authority, connected, gateway, relay } from './relay-site.ts'

const demo = await authority('demo')
const paris = await gateway(demo, 'paris')
const roma = await gateway(demo, 'roma')
const members = await brokerAuthority('demo')
const milano = await member(members, 'milano')
const signal = AbortSignal.timeout(60_000)
const soon = { deadlineMs: 10_000 }

async function bothOn(t: Test, limits: object = {}) {
  const shared = new SharedPort()
  const site = await startSite(members, { shared, limits: { graceMs: 100, ...limits } })
  t.teardown(() => site.close())
  const { port } = site.server.address
  const second = await relay(t, [demo], { shared })
  return { site, port, second, at: { ...second, url: new URL(`wss://127.0.0.1:${port}/`) } }
}

/** Whether the broker serves a member now. */
async function isServed(site: Awaited<ReturnType<typeof bothOn>>['site']): Promise<boolean> {
  const client = site.client(milano)
  try {
    for await (const message of client.watch({}, signal)) if (message.t === 'synced') return true
    return false
  } finally {
    client.close()
  }
}

/** The first message of a gateway's connection. */
async function hello(): Promise<Buffer> {
  let bytes = Buffer.alloc(0)
  const server = createServer((socket) => socket.on('data', (data: Buffer) => (bytes = Buffer.concat([bytes, data]))))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const client = connectTls({ port, host: '127.0.0.1', ALPNProtocols: ['http/1.1'] })
  client.on('error', () => undefined)
  const looks = new SharedPort()
  await eventually(() => looks.ownerOf(bytes, 1) === 'second', { ...soon, say: 'the message is whole' })
  client.destroy()
  server.close()
  return bytes
}

t.test('joining, records and packets by one port', async (t) => {
  const { site, port, at, second } = await bothOn(t)
  t.ok(await isServed(site), 'the broker')
  const proxy = await connectProxy(t, { login: 'ana:secret' })
  const a = await connected(paris, at)
  const b = await connected(roma, at, { proxies: () => parseProxy(proxy.url, 'HTTPS_PROXY') })
  t.same(proxy.asked, [`127.0.0.1:${port}`], 'through a proxy too')
  a.connection.want([roma.name])
  b.connection.want([paris.name])
  await eventually(() => a.present().length === 1 && b.present().length === 1, { ...soon, say: 'both are present' })
  for (let i = 0; i < 50; i++) a.connection.send(roma.name, Buffer.from(`datagram ${i}`))
  await eventually(() => b.got.length === 50, { ...soon, say: 'datagrams pass' })
  t.ok(await isServed(site), 'the broker beside it')
  await second.stop()
  t.ok((await a.connection.ended).againMs !== undefined, 'the relay says when to come again')
  await t.rejects(connected(paris, at), { name: 'RelayUnreachableError' })
  const late = connect(port, '127.0.0.1')
  let said = 0
  late.on('error', () => undefined).on('data', ({ length }: Buffer) => (said += length))
  late.write(await hello())
  await eventually(() => late.closed, { ...soon, say: 'a client of the relay is dropped' })
  t.equal(said, 0, 'before the broker begins a handshake with it')
  t.ok(await isServed(site), 'the broker goes on without the relay')
  b.connection.close()
})

t.test('strangers on the port', async (t) => {
  const { site, port, at } = await bothOn(t, { handshakeTimeoutMs: 300 })
  const closed = async (act: (socket: Socket) => void): Promise<boolean> => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => undefined).resume()
    await once(socket, 'connect')
    act(socket)
    await eventually(() => socket.closed || socket.readableEnded, { ...soon, say: 'it is closed' })
    socket.destroy()
    return true
  }
  const whole = await hello()
  const half = whole.subarray(0, 60)
  const rows: Readonly<Record<string, (socket: Socket) => void>> = {
    'nothing at all': () => undefined,
    'half a hello': (socket) => socket.write(half),
    'half a hello and its end': (socket) => socket.end(half),
    'no TLS': (socket) => socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'),
    'a hello that never ends': (socket) => {
      const record = Buffer.concat([Buffer.of(22, 3, 1, 0x3f, 0xf0, 1, 0, 0x3f, 0xff), Buffer.alloc(0x3fec)])
      for (let i = 0; i < 4; i++) socket.write(record)
    },
    'a hello, and nothing behind it': (socket) => socket.write(whole),
  }
  for (const [what, act] of Object.entries(rows)) t.ok(await closed(act), what)
  const silent = connectTls({ port, host: '127.0.0.1', ALPNProtocols: ['http/1.1'], rejectUnauthorized: false })
  silent.on('error', () => undefined).resume()
  await once(silent, 'secureConnect')
  await eventually(() => silent.closed || silent.readableEnded, { ...soon, say: 'one that sends no request is closed' })
  silent.destroy()
  const slow = connect(port, '127.0.0.1')
  let answered = false
  slow.on('error', () => undefined).on('data', () => (answered = true))
  for (const octet of whole) slow.write(Buffer.of(octet))
  await eventually(() => answered, { ...soon, say: 'one that comes in pieces is served' })
  slow.destroy()
  ;(await connected(paris, at)).connection.close()
  t.ok(await isServed(site))
})

t.test('a flood for the relay leaves the broker its turns, and is bounded', async (t) => {
  const { site, port, at } = await bothOn(t, { maxShared: 32 })
  const bytes = await hello()
  const sockets = Array.from({ length: 400 }, () => {
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => undefined).resume()
    socket.write(bytes)
    return socket
  })
  t.ok(await isServed(site), 'members are served')
  await eventually(() => sockets.filter(({ closed }) => closed).length > 200, { ...soon, say: 'most are dropped' })
  for (const socket of sockets) socket.destroy()
  // The rate of hand-overs recovers.
  const after = await eventually(() => connected(paris, at), { ...soon, say: 'a gateway connects after it' })
  after.connection.close()
})
