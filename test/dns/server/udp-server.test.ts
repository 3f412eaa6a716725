/** The UDP side of the server, with the same requirements whether it reads datagrams one by one or many at once. */
import { execFileSync } from 'node:child_process'
import { type Socket, type SocketOptions, createSocket } from 'node:dgram'
import { once } from 'node:events'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t, { type Test } from 'tap'
import { OWN_CLIENTS } from '../pipeline-fixture.ts'
import {
  DatagramSlots,
  type DatagramSource,
  MAX_QUERY_SIZE,
  type Mmsg,
  SLOTS,
  openMmsg,
} from '../../../dns/server/datagram-slots.ts'
import { descriptorOpenedBy } from '../../../dns/server/port-group.ts'
import { MOST_ROUNDS, type UdpServer, type UdpServerInit, openUdp } from '../../../dns/server/udp-server.ts'
import type { Reply } from '../../../dns/server/pipeline.ts'
import { parseAddress } from '../../../model/values/ip.ts'
import { eventually } from '../../support/eventually.ts'
import { ROOT } from '../../support/source-tree.ts'

const real = await openMmsg()
if (real === undefined) throw new Error('this Node has no node:ffi: the server would read datagrams one by one')

/** The largest batch that each kind has read. */
const largest = { 'many at once': 0, 'a system that takes few': 0 }

function counting(kind: keyof typeof largest, inner: Mmsg): Mmsg {
  return {
    ...inner,
    receive: (...args) => {
      const count = inner.receive(...args)
      largest[kind] = Math.max(largest[kind], count)
      return count
    },
  }
}

const few: Mmsg = {
  ...real,
  receive: (descriptor, headers, count) => real.receive(descriptor, headers, Math.min(count, 5)),
  // Every second call of this system sends nothing.
  send: (descriptor, headers, count) => (count % 2 === 0 ? -1 : real.send(descriptor, headers, Math.min(count, 2))),
}

const KINDS: readonly (readonly [string, Mmsg | undefined])[] = [
  ['one by one', undefined],
  ['many at once', counting('many at once', real)],
  ['a system that takes few', counting('a system that takes few', few)],
]

interface Started {
  readonly server: UdpServer
  /** The reasons why datagrams got no answer. */
  readonly dropped: string[]
}

interface StartInit extends Pick<UdpServerInit, 'mmsg'> {
  readonly answer: (query: Buffer) => Reply
}

async function start(t: Test, host: string, { mmsg, answer }: StartInit): Promise<Started> {
  const dropped: string[] = []
  const server = await openUdp({
    listen: { address: parseAddress(host), port: 0 },
    reusePort: true,
    mmsg,
    clients: OWN_CLIENTS,
    pipeline: { answer },
    onDropped: (reason, error) => dropped.push(error?.message ?? reason),
  })
  t.teardown(() => server.close().catch(() => undefined))
  return { server, dropped }
}

interface Client {
  readonly socket: Socket
  readonly received: string[]
}

async function client(t: Test, host: string, port: number): Promise<Client> {
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4')
  t.teardown(() => socket.close())
  const received: string[] = []
  socket.on('message', (message) => received.push(message.toString()))
  socket.connect(port, host)
  await once(socket, 'connect')
  return { socket, received }
}

/**
 * Returns whether a query gets no answer. The gaps come at different places in a batch, so a shifted answer would reach
 * the wrong client.
 */
function isSilent(text: string): boolean {
  const [c = 0, i = 0] = text.split('.').map(Number)
  return (3 * i + c) % 7 === 0
}

/** Of three clients. The kernel counts 768 octets for each datagram, and a socket takes 212,992 of them. */
const EACH = 60

const range = (count: number): number[] => Array.from({ length: count }, (_, i) => i)

for (const [kind, mmsg] of KINDS) {
  for (const host of ['127.0.0.1', '::1']) {
    t.test(`${kind}, ${host}: everyone gets the answers to their own questions, in order`, async (t) => {
      const { server, dropped } = await start(t, host, {
        mmsg,
        answer: (query) => (isSilent(query.toString()) ? undefined : Buffer.from(`re ${query.toString()}`)),
      })
      t.equal(server.isBatched, mmsg !== undefined)
      const clients = await Promise.all(range(3).map(() => client(t, host, server.port)))
      // The test sends all queries without a turn of the event loop, so that they wait together.
      for (const i of range(EACH)) for (const [c, { socket }] of clients.entries()) socket.send(`${c}.${i}`)
      const expected = (c: number): string[] =>
        range(EACH).flatMap((i) => (isSilent(`${c}.${i}`) ? [] : [`re ${c}.${i}`]))
      await eventually(() => clients.every(({ received }, c) => received.length === expected(c).length))
      for (const [c, { received }] of clients.entries()) t.same(received, expected(c))
      t.same(dropped, [])
    })
  }

  t.test(`${kind}: an answer that comes later finds its way, and the question is read in time`, async (t) => {
    const late: (() => void)[] = []
    const { server } = await start(t, '127.0.0.1', {
      mmsg,
      answer: (query) => {
        const text = `late ${query.toString()}`
        return new Promise((resolve) => late.push(() => resolve(Buffer.from(text))))
      },
    })
    const clients = await Promise.all(range(3).map(() => client(t, '127.0.0.1', server.port)))
    for (const i of range(60)) clients[i % 3]?.socket.send(`${i}`)
    await eventually(() => late.length === 60)
    for (const answer of late.reverse()) answer()
    await eventually(() => clients.every(({ received }) => received.length === 20))
    for (const [c, { received }] of clients.entries()) {
      t.same(
        [...received].sort(),
        range(60)
          .filter((i) => i % 3 === c)
          .map((i) => `late ${i}`)
          .sort(),
      )
    }
  })

  t.test(`${kind}: what is too long is its header alone, what is empty comes as empty`, async (t) => {
    const sizes: number[] = []
    const { server } = await start(t, '127.0.0.1', {
      mmsg,
      answer: (query) => {
        sizes.push(query.length)
        return Buffer.alloc(1232, 1)
      },
    })
    const { socket, received } = await client(t, '127.0.0.1', server.port)
    for (const size of [1, 0, MAX_QUERY_SIZE, MAX_QUERY_SIZE + 1, 60_000, 2]) socket.send(Buffer.alloc(size))
    await eventually(() => received.length === 6)
    t.same(sizes, [1, 0, MAX_QUERY_SIZE, 12, 12, 2])
    t.ok(received.every((answer) => answer.length === 1232))
  })
}

t.test('datagrams that wait together are read together', async (t) => {
  t.equal(largest['many at once'], SLOTS)
  t.equal(largest['a system that takes few'], 5)
})

t.test('users switch it off by an option of Node', (t) => {
  const module = JSON.stringify(pathToFileURL(join(ROOT, 'dns/server/datagram-slots.ts')).href)
  const script = `import { openMmsg } from ${module}\nconsole.log(typeof (await openMmsg()))`
  for (const [options, says] of [
    ['', 'object'],
    ['--no-experimental-ffi', 'undefined'],
  ] as const) {
    const env = { ...process.env, NODE_OPTIONS: options }
    const said = execFileSync(process.execPath, ['--input-type=module', '-e', script], { env, encoding: 'utf8' })
    t.equal(said.trim(), says, options)
  }
  t.end()
})

t.test('a flood leaves the process its turns', async (t) => {
  const turns: number[] = []
  let since = 0
  const { server } = await start(t, '127.0.0.1', {
    mmsg: real,
    answer: () => {
      if (since === 0) {
        setImmediate(() => {
          turns.push(since)
          since = 0
        })
      }
      since += 1
      return undefined
    },
  })
  const { socket } = await client(t, '127.0.0.1', server.port)
  for (const i of range(350)) socket.send(`${i}`)
  await eventually(() => turns.reduce((sum, count) => sum + count, 0) === 350)
  const most = Math.max(...turns)
  t.ok(most > 32 && most <= 32 + MOST_ROUNDS * SLOTS, `at most ${most} in one turn`)
})

t.test('a sender with a link-local address is known with its interface', async (t) => {
  const devices = '/sys/class/net'
  const indexes = readdirSync(devices).map((name) => Number(readFileSync(`${devices}/${name}/ifindex`, 'utf8')))
  for (const [scopeId, zone] of [
    // Index 1 is the loopback device in every network namespace.
    [1, '%lo'],
    [0, ''],
    [Math.max(...indexes) + 1000, ''],
  ] as const) {
    const slots = new DatagramSlots(writing(sockaddrIn6('fe80::1:2', 5353, scopeId)), 0)
    t.equal(slots.receive(), 1)
    t.same({ ...pick(slots.source(0)) }, { address: `fe80::1:2${zone}`, port: 5353 })
  }
})

function pick({ address, port }: DatagramSource): DatagramSource {
  return { address, port }
}

/** Returns a system that delivers one datagram from this sender. */
function writing(name: Buffer): Mmsg {
  let memory: Buffer = Buffer.alloc(0)
  return {
    addressOf: (buffer) => {
      memory = buffer
      return 0n
    },
    receive: () => {
      name.copy(memory, Number(memory.readBigUInt64LE(0)))
      return 1
    },
    send: () => -1,
  }
}

function sockaddrIn6(address: string, port: number, scopeId: number): Buffer {
  const name = Buffer.alloc(28)
  name.writeUInt16LE(10, 0)
  name.writeUInt16BE(port, 2)
  const { value } = parseAddress(address)
  name.writeBigUInt64BE(value >> 64n, 8)
  name.writeBigUInt64BE(value & 0xffff_ffff_ffff_ffffn, 16)
  name.writeUInt32LE(scopeId, 24)
  return name
}

t.test('a datagram from port 0 is not asked about: nobody can have the answer', async (t) => {
  let asked = 0
  const { server, dropped } = await start(t, '127.0.0.1', {
    mmsg: writing(sockaddrIn6('fe80::1:2', 0, 0)),
    answer: () => {
      asked += 1
      return undefined
    },
  })
  // close() first reads the waiting datagrams.
  await server.close()
  t.equal(asked, 0)
  t.same([...new Set(dropped)], ['no_source_port'])
})

t.test('what an upstream says after the end is not sent, and is no error', async (t) => {
  const upstream = Promise.withResolvers<Buffer>()
  let asked = 0
  const answer = (): Reply => {
    asked += 1
    return upstream.promise
  }
  const { server, dropped } = await start(t, '127.0.0.1', { mmsg: undefined, answer })
  const { socket, received } = await client(t, '127.0.0.1', server.port)
  socket.send('question')
  await eventually(() => asked === 1)
  await server.close()
  upstream.resolve(Buffer.from('late'))
  await new Promise((resolve) => setImmediate(resolve))
  t.same([received, dropped], [[], []])
})

t.test('the descriptor of a socket is told only where it is sure', async (t) => {
  const sockets: Socket[] = []
  const atOnce: SocketOptions['lookup'] = (name, _options, callback) => callback(null, name, 4)
  const open = (count: number): (() => void) => {
    return () => {
      for (const _ of range(count)) sockets.push(createSocket({ type: 'udp4', lookup: atOnce }).bind(0, '127.0.0.1'))
    }
  }
  t.teardown(() => sockets.forEach((socket) => socket.close()))
  t.equal(descriptorOpenedBy(open(0)), undefined)
  t.type(descriptorOpenedBy(open(1)), 'number')
  t.equal(descriptorOpenedBy(open(2)), undefined)
  const failing = (): void => {
    throw new Error('refused')
  }
  t.throws(() => descriptorOpenedBy(failing), { message: 'refused' })
})
