/** The protocols for which a client asks, read from real messages of TLS and from what strangers may send instead. */
import { once } from 'node:events'
import { type AddressInfo, type Socket, createServer } from 'node:net'
import { connect } from 'node:tls'
import fc from 'fast-check'
import t from 'tap'
import {
  MAX_HELLO_BYTES,
  MAX_HELLO_PIECES,
  MAX_HELLO_RECORDS,
  SharedPort,
  helloProtocols,
} from '../../../runtime/shared-port/shared-port.ts'
import { eventually } from '../../support/eventually.ts'

/** The first message of a client of Node that asks for these protocols. */
async function hello(protocols: readonly string[]): Promise<Buffer> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const accepted = once(server, 'connection')
  const ALPNProtocols = protocols.length === 0 ? {} : { ALPNProtocols: [...protocols] }
  const client = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', ...ALPNProtocols })
  client.on('error', () => undefined)
  const [socket] = (await accepted) as [Socket]
  let bytes = Buffer.alloc(0)
  socket.on('data', (chunk: Buffer) => (bytes = Buffer.concat([bytes, chunk])))
  await eventually(() => helloProtocols(bytes).t === 'known', { deadlineMs: 5000, say: 'the message is whole' })
  for (const one of [client, socket]) one.destroy()
  server.close()
  return bytes
}

/** The same message in records of at most so many octets. */
function inRecords(bytes: Buffer, most: number): Buffer {
  const body = bytes.subarray(5)
  const records: Buffer[] = []
  for (let at = 0; at < body.length; at += most) {
    const part = body.subarray(at, at + most)
    records.push(Buffer.of(22, 3, 1, part.length >> 8, part.length & 0xff), part)
  }
  return Buffer.concat(records)
}

const relay = await hello(['http/1.1'])
const broker = await hello(['h2'])
const plain = await hello([])

t.test('what clients ask for, and whose they are', async (t) => {
  const port = new SharedPort()
  const rows: readonly (readonly [string, Buffer, readonly string[], string])[] = [
    ['a gateway', relay, ['http/1.1'], 'second'],
    ['a member', broker, ['h2'], 'first'],
    ['a browser', await hello(['h2', 'http/1.1']), ['h2', 'http/1.1'], 'first'],
    ['none', plain, [], 'first'],
    ['in small records', inRecords(relay, Math.ceil((relay.length - 5) / MAX_HELLO_RECORDS)), ['http/1.1'], 'second'],
    ['with more behind it', Buffer.concat([relay, Buffer.alloc(3)]), ['http/1.1'], 'second'],
  ]
  for (const [what, bytes, protocols, owner] of rows) {
    t.same(helloProtocols(bytes), { t: 'known', protocols }, what)
    t.equal(port.ownerOf(bytes, 1), owner, what)
  }
  for (const whole of [relay, inRecords(relay, 100)])
    for (let length = 0; length < whole.length; length++)
      if (helloProtocols(whole.subarray(0, length)).t !== 'partial') t.fail(`${length} of ${whole.length} octets`)
})

t.test('what is no such message is none', async (t) => {
  const changed = (at: number, value: number): Buffer => {
    const bytes = Buffer.from(relay)
    bytes[at] = value
    return bytes
  }
  const rows: Readonly<Record<string, Buffer>> = {
    'HTTP without TLS': Buffer.from('GET / HTTP/1.1\r\n'),
    SSH: Buffer.from('SSH-2.0-x\r\n'),
    'another record': changed(0, 23),
    'another version': changed(1, 2),
    'another message': changed(5, 2),
    'a record without content': Buffer.of(22, 3, 1, 0, 0),
    'a record that is too long': Buffer.of(22, 3, 1, 0xff, 0xff),
    'a message that is too long': Buffer.of(22, 3, 1, 0, 4, 1, 0xff, 0xff, 0xff),
    'a list that is too long': changed(44 + (relay[43] ?? 0), 255),
    'in records of one octet': inRecords(relay, 1),
    'more than one message has': inRecords(Buffer.alloc(MAX_HELLO_BYTES + 10, 1), 16_000),
  }
  for (const [what, bytes] of Object.entries(rows)) {
    t.equal(helloProtocols(bytes).t, 'other', what)
    t.equal(new SharedPort().ownerOf(bytes, 1), 'first', what)
  }
})

t.test('no octets of a stranger throw, and all are read in the end', async () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      helloProtocols(Buffer.from(bytes))
    }),
  )
  const at = fc.nat({ max: relay.length - 1 })
  fc.assert(
    fc.property(fc.array(fc.tuple(at, fc.nat({ max: 255 })), { maxLength: 4 }), (changes) => {
      const bytes = Buffer.concat([relay, Buffer.alloc(MAX_HELLO_BYTES, 22)])
      for (const [where, value] of changes) bytes[where] = value
      return helloProtocols(bytes).t !== 'partial'
    }),
  )
})

t.test('a message that comes in more pieces than any client sends is not waited for', async (t) => {
  const [port, half] = [new SharedPort(), relay.subarray(0, 60)]
  const owners = Array.from({ length: MAX_HELLO_PIECES + 1 }, (_, i) => port.ownerOf(half, i + 1))
  t.same(owners, [...owners.slice(2).map(() => 'partial'), 'first', 'first'])
  t.equal(port.ownerOf(relay, MAX_HELLO_PIECES), 'second', 'the last piece counts')
})
