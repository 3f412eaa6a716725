import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { OWN_PROCESS } from '../../dns/clients/clients.ts'
import { Forwarder } from '../../dns/forward/forwarder.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { bestOf } from '../support/best-of.ts'
import { askUdp, startDns } from '../dns/dns-server.ts'
import { answerAtOnce, newPipeline } from '../dns/pipeline-fixture.ts'
import { TYPE, decode, query, uint16s } from '../dns/wire.ts'
import { syncedIndex, workedExamples } from '../dns/zone-fixture.ts'

const PACKETS = 200_000
const SOCKET_PACKETS = 5000
const S = 'shop.svc.clusterset.local.'
const seed = Number(process.env['SEALANE_FUZZ_SEED'] ?? 20_261_120)

/** Returns a generator (mulberry32), which is small and gives the same numbers on every machine. */
function generator(start: number): (below: number) => number {
  let state = start
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let x = Math.imul(state ^ (state >>> 15), 1 | state)
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x
    return ((x ^ (x >>> 14)) >>> 0) % below
  }
}

const NAMES = [
  `web.${S}`,
  `WEB.${S}`,
  `db.${S}`,
  `db-0.east.db.${S}`,
  `_pg._tcp.db.${S}`,
  `nope.${S}`,
  'clusterset.local.',
  '.',
  'example.org.',
  `${'a'.repeat(63)}.${'b'.repeat(63)}.${'c'.repeat(63)}.d.svc.clusterset.local.`,
]
const CORPUS = NAMES.flatMap((name) =>
  [TYPE.A, TYPE.AAAA, TYPE.SRV, 255].flatMap((type) => [
    query(name, { type }),
    query(name, { type, edns: { size: 4096 } }),
    query(name, { type, edns: { size: 512, dnssecOk: true, options: uint16s(10, 8, 1, 2, 3, 4) } }),
  ]),
)
const INTERESTING = [0, 1, 0x29, 0x3f, 0x40, 0x7f, 0x80, 0xc0, 0xff]

function mutate(pick: (below: number) => number): Buffer {
  let packet = Buffer.from(CORPUS[pick(CORPUS.length)] ?? '')
  for (let edits = 1 + pick(4); edits > 0; edits -= 1) {
    const at = pick(packet.length + 1)
    switch (pick(7)) {
      case 0:
        packet[at] = pick(256)
        break
      case 1:
        packet[at] = (packet[at] ?? 0) ^ (1 << pick(8))
        break
      case 2:
        packet[at] = INTERESTING[pick(INTERESTING.length)] ?? 0
        break
      case 3:
        packet = packet.subarray(0, at)
        break
      case 4:
        packet = Buffer.concat([packet, Buffer.from(Array.from({ length: pick(40) }, () => pick(256)))])
        break
      case 5:
        packet = Buffer.concat([packet.subarray(0, at), mutationSource(pick), packet.subarray(at)])
        break
      default:
        if (packet.length >= 12) packet.writeUInt16BE(pick(4) === 0 ? 0xffff : pick(3), 2 + 2 * pick(5))
    }
  }
  return packet
}

function mutationSource(pick: (below: number) => number): Buffer {
  const other = CORPUS[pick(CORPUS.length)] ?? Buffer.alloc(0)
  const from = pick(other.length)
  return other.subarray(from, from + pick(30))
}

t.test(
  `${PACKETS} mutated packets: no throw, no stall, nothing too large (seed ${seed})`,
  { timeout: 120_000 },
  async (t) => {
    t.comment(`SEALANE_FUZZ_SEED=${seed}`)
    const clock = new SystemClock()
    const logger = new CapturingLogger()
    const index = await syncedIndex(workedExamples())
    // Without an upstream, a forwarded query fails at once.
    const forwarder = new Forwarder(
      { clock, onResult: () => undefined, onFailure: () => undefined },
      { upstreams: [], timeoutMs: 10, maxInFlight: 100, clientPerSecond: 1_000_000 },
    )
    const pipeline = newPipeline(index, { clock, logger, forwarder })
    const pick = generator(seed)
    const counts = { answered: 0, later: 0, silent: 0 }
    const wrong: string[] = []
    let slowest: { ms: number; packet: Buffer } = { ms: 0, packet: Buffer.alloc(0) }

    const check = (packet: Buffer, answer: Buffer): void => {
      const allowed = Math.min(1232, Math.max(512, ednsSize(packet)))
      if (answer.length > allowed) wrong.push(`${answer.length} octets for ${packet.toString('hex')}`)
      if (answer.readUInt16BE(0) !== packet.readUInt16BE(0)) wrong.push(`other id for ${packet.toString('hex')}`)
      try {
        if (!decode(answer).flags.startsWith('qr')) wrong.push(`a query came back for ${packet.toString('hex')}`)
      } catch (error) {
        wrong.push(`${String(error)} for ${packet.toString('hex')}`)
      }
    }
    for (let i = 0; i < PACKETS; i += 1) {
      const packet = mutate(pick)
      const started = performance.now()
      const reply = pipeline.answer(packet, 'udp', OWN_PROCESS)
      const ms = performance.now() - started
      if (ms > slowest.ms) slowest = { ms, packet }
      if (reply === undefined) counts.silent += 1
      else if (Buffer.isBuffer(reply)) {
        counts.answered += 1
        check(packet, reply)
      } else {
        void reply.then((late) => {
          counts.later += 1
          if (late === undefined) wrong.push(`no answer for ${packet.toString('hex')}`)
          else check(packet, late)
        })
      }
      if ((i & 1023) === 0) await new Promise((resolve) => setImmediate(resolve))
    }
    await new Promise((resolve) => setImmediate(resolve))
    t.comment(JSON.stringify({ ...counts, slowestMs: Math.round(slowest.ms) }))
    t.same(wrong.slice(0, 5), [])
    t.equal(forwarder.inFlight, 0)
    t.same(logger.messages('error').slice(0, 5), [], 'no fault of ours was caught')
    // A busy machine may interrupt one measurement, but not each of them.
    const [worst = 0, plain = 0] = [slowest.packet, query(`web.${S}`)].map((packet) =>
      bestOf(20, () => void pipeline.answer(packet, 'udp', OWN_PROCESS)),
    )
    t.ok(worst < 100 * plain, `${slowest.packet.toString('hex')} takes ${worst} ms, a plain query ${plain} ms`)
    t.ok(counts.answered > PACKETS / 4, 'most of them are near enough to a query to matter')
    t.ok(pipeline.kept < 100, 'made-up names are not kept')
    const last = answerAtOnce(pipeline, query(`web.${S}`))
    t.equal(decode(last).answers[0]?.data, '243.0.0.7', 'and it still answers')
  },
)

/** Returns the size in the first OPT record of a valid packet, and a size that is large enough for an invalid one. */
function ednsSize(packet: Buffer): number {
  try {
    return decode(packet).additionals.find((record) => record.type === TYPE.OPT)?.class ?? 0
  } catch {
    return 1232
  }
}

t.test(`${SOCKET_PACKETS} mutated packets through real sockets`, { timeout: 60_000 }, async (t) => {
  const server = await startDns(t, workedExamples())
  const pick = generator(seed + 1)
  const socket = createSocket('udp4')
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  for (let i = 0; i < SOCKET_PACKETS; i += 1) {
    socket.send(mutate(pick), server.port, '127.0.0.1')
    if (i % 50 === 0) await new Promise((resolve) => setImmediate(resolve))
  }
  socket.close()
  for (let i = 0; i < 50; i += 1) {
    const client = connect(server.port, '127.0.0.1')
    client.on('error', () => undefined)
    client.on('data', () => undefined)
    for (let j = 0; j < 20; j += 1) {
      const packet = mutate(pick)
      // Every fifth length prefix is wrong.
      client.write(Buffer.concat([uint16s(pick(5) === 0 ? pick(65_536) : packet.length), packet]))
    }
    if (i % 2 === 0) client.end()
    else client.destroy()
  }
  const got = await askUdp(server.port, query(`web.${S}`, { id: 7 }))
  t.equal(got.answers[0]?.data, '243.0.0.7')
})
