/**
 * Clients send invalid bytes over TCP, with an upstream. However a connection continues and ends, the server forwards
 * no question that the client did not send, and still answers other clients.
 */
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import fc from 'fast-check'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { askTcp, startDns } from './dns-server.ts'
import { nameBytes, query, uint16s } from './wire.ts'
import { workedExamples } from './zone-fixture.ts'

const OURS = query('web.shop.svc.clusterset.local.')
const RUNS = 300

/** One piece of a client's input. A question contains the number of its run in its name. */
const piece = fc.oneof(
  { weight: 4, arbitrary: fc.constant('question' as const) },
  { weight: 1, arbitrary: fc.constant('ours' as const) },
  { weight: 2, arbitrary: fc.uint8Array({ maxLength: 40 }) },
  { weight: 2, arbitrary: fc.integer({ min: 0, max: 0xffff }).map((length) => Uint8Array.from(uint16s(length))) },
)
const client = fc.record({
  pieces: fc.array(piece, { minLength: 1, maxLength: 12 }),
  /** The number of octets in one write. */
  segment: fc.integer({ min: 1, max: 400 }),
  how: fc.constantFrom('end', 'reset', 'destroy'),
})

t.test(`${RUNS} clients over TCP that keep to no rule, with an upstream`, { timeout: 120_000 }, async (t) => {
  const upstream = createSocket('udp4').bind(0, '127.0.0.1')
  await once(upstream, 'listening')
  t.teardown(() => upstream.close())
  const asked = new Map<string, number>()
  upstream.on('message', (bytes, source) => {
    const key = bytes.toString('latin1', 12)
    asked.set(key, (asked.get(key) ?? 0) + 1)
    const answer = Buffer.from(bytes)
    answer.writeUInt16BE(0x8183, 2)
    // The answer is late, so that many connections have closed by then.
    setTimeout(() => upstream.send(answer, source.port, source.address), 5)
  })
  const { port } = await startDns(t, workedExamples(), { upstreams: [`127.0.0.1:${upstream.address().port}`] })
  let run = 0
  const property = fc.asyncProperty(client, async ({ pieces, segment, how }) => {
    run += 1
    const name = `run${run}.example.`
    const question = framed(query(name))
    const bytes = Buffer.concat(
      pieces.map((one) => (one === 'question' ? question : one === 'ours' ? framed(OURS) : Buffer.from(one))),
    )
    const socket = connect(port, '127.0.0.1')
    socket.on('error', () => undefined).resume()
    await once(socket, 'connect')
    const closed = once(socket, 'close')
    for (let at = 0; at < bytes.length; at += segment) socket.write(bytes.subarray(at, at + segment))
    if (how === 'end') socket.end()
    if (how === 'reset') socket.resetAndDestroy()
    if (how === 'destroy') socket.destroy()
    await closed
    const sent = pieces.filter((one) => one === 'question').length
    const marker = nameBytes(name).toString('latin1')
    const seen = [...asked].filter(([key]) => key.startsWith(marker)).reduce((sum, [, count]) => sum + count, 0)
    return seen <= sent
  })
  await fc.assert(property, { numRuns: RUNS, seed: Number(process.env['SEALANE_FUZZ_SEED'] ?? 20_261_123) })
  t.equal((await askTcp(port, [OURS])).length, 1, 'it still answers')
  const total = (): number => [...asked.values()].reduce((sum, count) => sum + count, 0)
  const before = total()
  // A query in an endless loop would arrive during these queries.
  for (let i = 0; i < 20; i += 1) await askTcp(port, [query(`after${i}.example.`)])
  await eventually(() => total() >= before + 20)
  t.equal(total(), before + 20, 'nothing is asked that nobody asked')
})

function framed(bytes: Buffer): Buffer {
  return Buffer.concat([uint16s(bytes.length), bytes])
}
