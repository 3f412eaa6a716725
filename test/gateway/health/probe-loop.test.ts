/** The prober of one lane against far ends that answer, lie or keep quiet. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { gatewayMetrics } from '../../../gateway/metrics.ts'
import { LaneProber } from '../../../gateway/health/probe-loop.ts'
import { PROBE_BYTES, type Probe, decodeProbe, encodeProbe } from '../../../gateway/health/probe-packet.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { FakeProbes } from '../support/fake-probes.ts'

const OWN = '246.0.1.0'
const PARIS = '246.0.2.0'

function setUp(t: { teardown: (end: () => void) => unknown }) {
  const clock = new FakeClock()
  const probes = new FakeProbes()
  const logger = new CapturingLogger()
  const seen: string[] = []
  const prober = new LaneProber(
    {
      clock,
      logger,
      metrics: gatewayMetrics(createMetrics('gateway')),
      openSocket: probes.openSocket,
      onTransition: ({ cluster }, from, to) => seen.push(`${clock.monotonic()} ${cluster} ${from}>${to}`),
    },
    { lane: 0, address: OWN, intervalMs: 200, missesUntilDown: 3, answersUntilUp: 2 },
  )
  prober.setPeers([{ cluster: 'paris', remoteLane: 0, laneAddress: PARIS }])
  const stopping = new AbortController()
  const running = prober.run(stopping.signal)
  t.teardown(() => stopping.abort())
  return {
    clock,
    probes,
    logger,
    seen,
    prober,
    stop: () => {
      stopping.abort()
      return running
    },
  }
}

t.test('up at the first answer; down after three without; up again after two', async (t) => {
  const { clock, probes, seen, prober } = setUp(t)
  await clock.advance(450)
  t.strictSame(seen, [], 'silence is not down, only not up')
  probes.alive.add(PARIS)
  await clock.advance(1000)
  t.strictSame(seen, ['600 paris connecting>up'])
  probes.alive.clear()
  await clock.advance(1000)
  t.strictSame(seen.slice(1), ['2200 paris up>down'], 'the probes of 1600, 1800 and 2000 got no answer')
  probes.alive.add(PARIS)
  await clock.advance(1000)
  t.strictSame(seen.slice(2), ['2800 paris down>up'])
  const { figures, state } = prober.health().get('0/paris')!
  t.equal(state, 'up')
  t.equal(figures.rttMs, 0)
  t.ok(figures.loss! > 0.2 && figures.loss! < 0.8, `loss ${figures.loss}`)
})

t.test('a lane that opens is noticed at once: by the first question, and by who takes it over', async (t) => {
  const { clock, probes, seen, prober } = setUp(t)
  await clock.advance(450)
  probes.alive.add(PARIS)
  const question: Probe = { type: 'question', lane: 0, session: 7, sequence: 1, sentMicros: 0n }
  probes.receive(OWN, PARIS, encodeProbe(question))
  await clock.advance(1)
  t.strictSame(seen, ['450 paris connecting>up'])
  const questions = (): number => probes.sent.filter(({ bytes }) => decodeProbe(bytes)?.type === 'question').length
  const before = questions()
  prober.setPeers([{ cluster: 'paris', remoteLane: 0, laneAddress: PARIS, identity: 'another' }])
  prober.setPeers([{ cluster: 'paris', remoteLane: 0, laneAddress: PARIS, identity: 'a third' }])
  t.equal(questions(), before, 'once in an interval')
  await clock.advance(200)
  const after = questions()
  prober.setPeers([{ cluster: 'paris', remoteLane: 0, laneAddress: PARIS, identity: 'a fourth' }])
  prober.setPeers([{ cluster: 'paris', remoteLane: 0, laneAddress: PARIS, identity: 'a fourth' }])
  t.equal(questions(), after + 1)
})

t.test('a far process that is silent is not a lane that is down, while its kernel answers', async (t) => {
  const { clock, probes, seen, prober } = setUp(t)
  probes.kernels.add(PARIS)
  await clock.advance(1000)
  t.strictSame(seen, [], 'one that was never heard is not taken for up')
  probes.alive.add(PARIS)
  await clock.advance(600)
  probes.alive.clear()
  await clock.advance(10_000)
  t.strictSame(seen, ['1200 paris connecting>up'])
  t.equal(prober.health().get('0/paris')?.kernelOnly, true)
  probes.kernels.clear()
  await clock.advance(1000)
  t.match(seen[1], 'up>down', 'now it is')
  probes.kernels.add(PARIS)
  await clock.advance(1000)
  t.match(seen[2], 'down>up', 'the path is back, though the process is not')
  probes.alive.add(PARIS)
  await clock.advance(1000)
  t.equal(prober.health().get('0/paris')?.kernelOnly, false)
  t.equal(seen.length, 3)
})

t.test('peers that stay keep their state, others start anew', async (t) => {
  const { clock, probes, prober } = setUp(t)
  probes.alive.add(PARIS)
  await clock.advance(300)
  prober.setPeers([
    { cluster: 'paris', remoteLane: 0, laneAddress: PARIS },
    { cluster: 'tokyo', remoteLane: 0, laneAddress: '246.0.3.0' },
  ])
  t.strictSame(
    [...prober.health()].map(([id, view]) => `${id} ${view.state}`),
    ['0/paris up', '0/tokyo connecting'],
  )
  prober.setPeers([{ cluster: 'lyon', remoteLane: 0, laneAddress: PARIS }])
  t.strictSame(
    [...prober.health()].map(([id, view]) => `${id} ${view.state}`),
    ['0/lyon connecting'],
    'another cluster at the same address',
  )
})

t.test('answers are checked', async (t) => {
  const { clock, probes, prober } = setUp(t)
  await clock.advance(10)
  const asked = decodeProbe(probes.sent[0]!.bytes)!
  const answer: Probe = { ...asked, type: 'answer' }
  const bad: [say: string, from: string, bytes: Buffer, port?: number][] = [
    ['from somebody else', '246.0.3.0', encodeProbe(answer)],
    ['from another port', PARIS, encodeProbe(answer), 5000],
    ['of another lane', PARIS, encodeProbe({ ...answer, lane: 1 })],
    ['of another session', PARIS, encodeProbe({ ...answer, session: (answer.session ^ 1) >>> 0 })],
    ['of a probe that was not sent', PARIS, encodeProbe({ ...answer, sequence: 99 })],
    ['too short', PARIS, encodeProbe(answer).subarray(0, PROBE_BYTES - 1)],
    ['too long', PARIS, Buffer.concat([encodeProbe(answer), Buffer.alloc(1)])],
    ['empty', PARIS, Buffer.alloc(0)],
  ]
  for (const [say, from, bytes, port] of bad) {
    probes.receive(OWN, from, bytes, port)
    t.equal(prober.health().get('0/paris')!.state, 'connecting', say)
  }
  probes.receive(OWN, PARIS, encodeProbe(answer))
  t.equal(prober.health().get('0/paris')!.state, 'up', 'the right one counts')
})

t.test('questions of peers are answered, of others not', async (t) => {
  const { clock, probes } = setUp(t)
  await clock.advance(10)
  probes.sent.length = 0
  const question: Probe = { type: 'question', lane: 0, session: 7, sequence: 8, sentMicros: 9n }
  probes.receive(OWN, '246.0.9.0', encodeProbe(question))
  t.equal(probes.sent.length, 0)
  probes.receive(OWN, PARIS, encodeProbe(question))
  const said = probes.sent.map(({ to, bytes }) => ({ to, probe: decodeProbe(bytes) }))
  t.strictSame(said[0], { to: PARIS, probe: { ...question, type: 'answer' } })
  t.match(said.slice(1), [{ to: PARIS, probe: { type: 'question' } }], 'and asked in turn: it was not heard before')
})

t.test('a question has the number of who asks, an answer repeats it', async (t) => {
  const { clock, probes, prober } = setUp(t)
  const second = '246.0.2.5'
  prober.setPeers([
    { cluster: 'paris', remoteLane: 0, laneAddress: PARIS },
    { cluster: 'paris', remoteLane: 5, laneAddress: second },
  ])
  probes.alive.add(second)
  await clock.advance(300)
  t.strictSame(
    [...prober.health()].map(([key, { state }]) => `${key} ${state}`),
    ['0/paris connecting', '5/paris up'],
    'each link by itself',
  )
  const lanes = (): (number | undefined)[] => probes.sent.map(({ bytes }) => decodeProbe(bytes)?.lane)
  t.strictSame(new Set(lanes()), new Set([0]), 'we ask as lane 0')
  probes.sent.length = 0
  const question: Probe = { type: 'question', lane: 5, session: 7, sequence: 8, sentMicros: 9n }
  probes.receive(OWN, second, encodeProbe({ ...question, lane: 0 }))
  t.strictSame(lanes(), [], 'it is not lane 0 who asks')
  probes.receive(OWN, second, encodeProbe(question))
  t.strictSame(lanes(), [5])
})

t.test('a socket that fails is opened again, and the peer comes back', async (t) => {
  const { clock, probes, logger, prober } = setUp(t)
  probes.alive.add(PARIS)
  await clock.advance(300)
  probes.fail(OWN, 'bind EADDRNOTAVAIL')
  t.strictSame(logger.messages('warn'), ['probe socket failed; it will be opened again'])
  await clock.advance(900)
  t.equal(prober.health().get('0/paris')!.state, 'down')
  t.equal(probes.opened, 1, 'not at once')
  await clock.advance(1500)
  t.equal(probes.opened, 2)
  t.equal(prober.health().get('0/paris')!.state, 'up')
})

t.test('stops at the signal and closes its socket', async (t) => {
  const { clock, probes, stop } = setUp(t)
  await clock.advance(10)
  await stop()
  t.equal(probes.open.size, 0)
  t.strictSame(clock.pending(), [])
})

t.test('packets: what is written is read; nothing makes the reader throw', async (t) => {
  const probe = fc.record({
    type: fc.constantFrom('question' as const, 'answer' as const),
    lane: fc.nat(255),
    session: fc.nat(0xffffffff),
    sequence: fc.nat(0xffffffff),
    sentMicros: fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
  })
  fc.assert(
    fc.property(probe, (p) => {
      assert.deepEqual(decodeProbe(encodeProbe(p)), { ...p })
    }),
    { numRuns: 200 },
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      decodeProbe(Buffer.from(bytes))
    }),
  )
  t.pass()
})
