/** TCP with upstreams: a client closes or breaks its connection while its questions are under way. */
import { type Socket as UdpSocket, createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { eventually } from '../../support/eventually.ts'
import { askTcp, startDns } from '../dns-server.ts'
import { query, uint16s } from '../wire.ts'
import { workedExamples } from '../zone-fixture.ts'

const framed = (bytes: Buffer): Buffer => Buffer.concat([uint16s(bytes.length), bytes])

interface HeldUpstream {
  readonly address: string
  /** The received questions; release() answers each of them. */
  readonly seen: Buffer[]
  readonly release: () => void
}

/** Starts an upstream that holds its answers back. */
async function holdingUpstream(t: Test): Promise<HeldUpstream> {
  const socket: UdpSocket = createSocket('udp4').bind(0, '127.0.0.1')
  await once(socket, 'listening')
  t.teardown(() => socket.close())
  const seen: Buffer[] = []
  const held: (() => void)[] = []
  socket.on('message', (bytes, source) => {
    seen.push(bytes)
    const answer = Buffer.from(bytes)
    answer.writeUInt16BE(0x8183, 2)
    held.push(() => socket.send(answer, source.port, source.address))
  })
  return {
    address: `127.0.0.1:${socket.address().port}`,
    seen,
    release: () => {
      for (const send of held.splice(0)) send()
    },
  }
}

interface Ending {
  readonly name: string
  /** The bytes after the three questions, in the same segment or in a separate one. */
  readonly bytes?: Buffer
  readonly how?: 'end' | 'reset'
}

const ENDINGS: readonly Ending[] = [
  { name: 'a length of 65,535, then the end', bytes: uint16s(0xffff), how: 'end' },
  { name: 'a length of 65,535, then a reset', bytes: uint16s(0xffff), how: 'reset' },
  { name: 'a length of 65,535 and nothing more', bytes: uint16s(0xffff) },
  { name: 'a length of 4,097 and as many octets', bytes: Buffer.concat([uint16s(4097), Buffer.alloc(4097)]) },
  { name: 'half a query, then the end', bytes: uint16s(100, 1, 2), how: 'end' },
  { name: 'a reset', how: 'reset' },
  { name: 'the end', how: 'end' },
]
const OURS = query('web.shop.svc.clusterset.local.')

for (const { name, bytes = Buffer.alloc(0), how } of ENDINGS) {
  for (const together of [true, false]) {
    const say = `three questions for an upstream, then ${name}${together ? ', in one segment' : ''}: each is asked once`
    t.test(say, async (t) => {
      const upstream = await holdingUpstream(t)
      const server = await startDns(t, workedExamples(), { upstreams: [upstream.address] })
      const socket = connect(server.port, '127.0.0.1')
      socket.on('error', () => undefined).resume()
      await once(socket, 'connect')
      const closed = once(socket, 'close')
      const questions = Buffer.concat([1, 2, 3].map((id) => framed(query(`q${id}.example.`, { id }))))
      socket.write(together ? Buffer.concat([questions, bytes]) : questions)
      await eventually(() => upstream.seen.length === 3, { say: 'three questions have come' })
      if (!together && bytes.length > 0) socket.write(bytes)
      if (how === 'end') socket.end()
      if (how === 'reset') socket.resetAndDestroy()
      // The server handles input in turn, so this answer shows that it has read the end of the first connection.
      await askTcp(server.port, [OURS])
      upstream.release()
      await closed
      t.equal((await askTcp(server.port, [OURS])).length, 1, 'others are served')
      t.equal(upstream.seen.length, 3)
      await server.stop()
    })
  }
}
