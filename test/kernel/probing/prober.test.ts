/** The prober against far ends that answer, lie or are silent. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  PROBE_BYTES,
  PROBE_HEADERS,
  type Probe,
  decodeProbe,
  encodeProbe,
} from '../../../kernel/probing/probe-packet.ts'
import { OWN, PARIS, TOKYO, setUp } from './prober-stage.ts'

t.test('up at the first answer; doubted after four without, down after some time; up again after two', async (t) => {
  const { clock, probes, seen, prober } = setUp(t)
  await clock.advance(450)
  t.strictSame(seen, [], 'silence is not down, only not up')
  probes.alive.add(PARIS.address)
  await clock.advance(1000)
  t.equal(seen.length, 1)
  t.match(seen[0], /^\d+ paris connecting>up$/)
  const diedMs = clock.monotonic()
  probes.alive.clear()
  await clock.advance(3000)
  const [doubted, down, ...more] = seen.slice(1).map((text) => ({ text, afterMs: parseInt(text, 10) - diedMs }))
  t.match(doubted?.text, 'paris doubted')
  t.ok(doubted!.afterMs <= 220 + 60 + 3 * 10 + 60, `doubted after ${doubted?.afterMs} ms`)
  t.match(down?.text, 'paris up>down')
  t.ok(down!.afterMs >= 1300 && down!.afterMs <= 2200, `down after ${down?.afterMs} ms`)
  t.strictSame(more, [])
  probes.alive.add(PARIS.address)
  await clock.advance(1000)
  t.match(seen.slice(3), [/down>up/])
  const { figures, state } = prober.health().get('paris')!
  t.equal(state, 'up')
  t.equal(figures.rttMs, 0)
  t.equal(figures.loss, undefined, 'nothing is known yet of the link since it is up again')
  await clock.advance(4000)
  t.equal(prober.health().get('paris')?.figures.loss, 0, 'what was lost while it was not up is no loss of it')
})

t.test(
  'probes that found nobody are no losses: before the first answer, and of a process that is restarted',
  async (t) => {
    const { clock, probes, prober } = setUp(t)
    const loss = () => prober.health().get('paris')?.figures.loss
    await clock.advance(9000)
    t.equal(loss(), undefined, 'nothing is known of a way on which nobody was ever heard')
    probes.alive.add(PARIS.address)
    await clock.advance(5000)
    t.equal(loss(), 0, 'the far end came up later')
    probes.kernels.add(PARIS.address)
    probes.alive.clear()
    await clock.advance(9000)
    probes.alive.add(PARIS.address)
    await clock.advance(5000)
    t.equal(loss(), 0, 'the kernel answered while the process did not')
    t.equal(prober.health().get('paris')?.state, 'up')
  },
)

t.test('a way that loses packets says so', async (t) => {
  const { clock, probes, prober } = setUp(t)
  probes.alive.add(PARIS.address)
  probes.kernels.add(PARIS.address)
  await clock.advance(12_000)
  for (let i = 0; i < 20; i += 1) {
    probes.alive.delete(PARIS.address)
    await clock.advance(1000)
    probes.alive.add(PARIS.address)
    await clock.advance(2000)
  }
  const { figures, state } = prober.health().get('paris')!
  t.equal(state, 'up')
  t.ok(figures.loss! > 0.2 && figures.loss! < 0.6, `loss ${figures.loss}, though its kernel answered each time`)
})

t.test('five questions a second where traffic flows, one where none does', async (t) => {
  const { clock, probes, busy, questions } = setUp(t)
  probes.alive.add(PARIS.address)
  const inTenSeconds = async (): Promise<number> => {
    const before = questions()
    await clock.advance(10_000)
    return questions() - before
  }
  await clock.advance(11_000)
  const idle = await inTenSeconds()
  t.ok(idle >= 9 && idle <= 11, `idle: ${idle}`)
  busy.add('paris')
  await clock.advance(1500)
  const flowing = await inTenSeconds()
  t.ok(flowing >= 42 && flowing <= 55, `busy: ${flowing}`)
})

t.test('one that has never answered is asked at once when it is called', async (t) => {
  const { clock, probes, prober, questions, seen } = setUp(t)
  await clock.advance(20_000)
  const before = questions()
  prober.askNew(new Set(['tokyo']))
  t.equal(questions(), before, 'another one was called')
  probes.alive.add(PARIS.address)
  prober.askNew(new Set(['paris']))
  prober.askNew(new Set(['paris']))
  t.equal(questions(), before + 1, 'calls in a row are one question')
  await clock.advance(10)
  t.match(seen, [/connecting>up/])
  await clock.advance(300)
  const up = questions()
  prober.askNew(new Set(['paris']))
  t.equal(questions(), up, 'one that is up has its own times')
})

t.test('one that never answers is asked less often after a while', async (t) => {
  const { clock, questions } = setUp(t)
  await clock.advance(15_000)
  const before = questions()
  await clock.advance(10_000)
  const asked = questions() - before
  t.ok(asked >= 9 && asked <= 11, `${asked}`)
})

t.test('a way that becomes slow all at once is doubted, and not down', async (t) => {
  const { clock, probes, seen } = setUp(t)
  probes.alive.add(PARIS.address)
  await clock.advance(5000)
  probes.delay = { clock, ms: 700 }
  await clock.advance(60_000)
  t.notOk(
    seen.some((text) => text.includes('>down')),
    seen.join('; '),
  )
  t.match(seen.at(-1), 'trusted')
  t.ok(seen.length <= 5, `it settles: ${seen.join('; ')}`)
})

t.test('silence is noticed within 640 ms, as far as new connections go, and they come back later', async (t) => {
  // The moment within the interval of questions at which packets stop to pass.
  for (const phaseMs of [0, 50, 100, 150, 199]) {
    const { clock, probes, avoided, busy } = setUp(t)
    busy.add('paris')
    probes.alive.add(PARIS.address)
    await clock.advance(12_000 + phaseMs)
    const diedMs = clock.monotonic()
    probes.alive.clear()
    await clock.advance(1000)
    const afterMs = parseInt(avoided[0] ?? '', 10) - diedMs
    t.ok(avoided.length === 1 && afterMs >= 370 && afterMs <= 640, `${phaseMs} ms: ${avoided.join()}, ${afterMs} ms`)
    const backMs = clock.monotonic()
    probes.alive.add(PARIS.address)
    await clock.advance(5000)
    const took = parseInt(avoided[1] ?? '', 10) - backMs
    t.ok(took >= 3000 && took <= 3500, `calm for a while: ${took} ms`)
  }
})

t.test('new connections stay where packets are late or lost, or where only a process is silent', async (t) => {
  const rows: readonly (readonly [say: string, happen: (stage: ReturnType<typeof setUp>) => Promise<void>])[] = [
    [
      'answers are late by 300 ms all at once',
      async ({ clock, probes }) => {
        probes.delay = { clock, ms: 300 }
        await clock.advance(10_000)
      },
    ],
    [
      'no packet passes for 300 ms',
      async ({ clock, probes }) => {
        probes.alive.clear()
        await clock.advance(300)
      },
    ],
    [
      'the far process is gone, and its kernel answers',
      async ({ clock, probes }) => {
        probes.kernels.add(PARIS.address)
        probes.alive.clear()
        await clock.advance(10_000)
      },
    ],
    [
      'a third of the packets is lost',
      async ({ clock, probes }) => {
        // Wichmann and Hill's generator, in its first two parts.
        let [one, other] = [7, 11]
        for (let i = 0; i < 6000; i += 1) {
          ;[one, other] = [(171 * one) % 30_269, (172 * other) % 30_307]
          if (one / 30_269 < 1 / 3) probes.alive.delete(PARIS.address)
          else probes.alive.add(PARIS.address)
          if (other / 30_307 < 1 / 3) probes.kernels.delete(PARIS.address)
          else probes.kernels.add(PARIS.address)
          await clock.advance(10)
        }
      },
    ],
  ]
  for (const [say, happen] of rows) {
    const stage = setUp(t)
    stage.busy.add('paris')
    stage.probes.alive.add(PARIS.address)
    await stage.clock.advance(12_000)
    await happen(stage)
    stage.probes.alive.add(PARIS.address)
    await stage.clock.advance(5000)
    t.strictSame(stage.avoided, [], say)
  }
})

t.test('where questions are rare, a moment without packets moves nothing either, and a longer one does', async (t) => {
  for (let phaseMs = 0; phaseMs < 1000; phaseMs += 90) {
    const { clock, probes, avoided } = setUp(t)
    probes.alive.add(PARIS.address)
    await clock.advance(15_000 + phaseMs)
    probes.alive.clear()
    await clock.advance(300)
    probes.alive.add(PARIS.address)
    await clock.advance(5000)
    t.strictSame(avoided, [], `at ${phaseMs} ms`)
    probes.alive.clear()
    await clock.advance(1550)
    t.equal(avoided.length, 1, `at ${phaseMs} ms`)
  }
})

t.test('an idle link is asked at once when it may be silent too', async (t) => {
  const { clock, probes, avoided, prober } = setUp(t)
  prober.setPeers([PARIS, TOKYO])
  for (const { address } of [PARIS, TOKYO]) probes.alive.add(address)
  await clock.advance(15_000)
  for (let i = 0; i < 20; i += 1) {
    probes.sent.length = 0
    prober.hasten(new Set(['paris']))
    await clock.advance(10)
    const asked = probes.sent.filter(({ to }) => to === PARIS.address).length
    t.ok(asked === 1, `asked ${asked} times`)
    await clock.advance(137)
  }
  const diedMs = clock.monotonic()
  probes.alive.delete(PARIS.address)
  await clock.advance(30)
  prober.hasten(new Set(['paris']))
  await clock.advance(20)
  // It is being asked, so that this changes nothing.
  prober.hasten(new Set(['paris']))
  await clock.advance(1000)
  const [first = ''] = avoided
  t.match(first, 'paris avoided')
  t.ok(parseInt(first, 10) - diedMs <= 660, first)
})

t.test('a way across half the world comes back soon, however long it was away', async (t) => {
  // A path that has become longer also recovers, once the prober has measured the longer round trip.
  const ways = [190, 300, 450, 700, 950, 1300, 1700, 2400, 4000].map((ms) => [ms, ms] as const)
  for (const [ms, laterMs] of [...ways, [20, 300], [20, 900], [20, 3000], [400, 1200]] as const) {
    for (const awayMs of ms > 1300 ? [15_000, 120_000] : [5000, 15_000, 120_000]) {
      const { clock, probes, seen } = setUp(t)
      probes.alive.add(PARIS.address)
      probes.delay = { clock, ms }
      await clock.advance(15_000)
      probes.alive.clear()
      await clock.advance(awayMs)
      const way = `${ms} ms, away ${awayMs} ms`
      t.match(seen.at(-1), 'up>down', way)
      const before = seen.length
      probes.alive.add(PARIS.address)
      probes.delay = { clock, ms: laterMs }
      const backMs = clock.monotonic()
      await clock.advance(20_000)
      const back = seen.slice(before).find((text) => text.includes('down>up'))
      const took = back === undefined ? Infinity : parseInt(back, 10) - backMs
      const most = ms === laterMs ? 1500 + 2 * ms : 10_000
      t.ok(took <= most, `${way}, then ${laterMs} ms: back after ${took} ms`)
      t.match(seen.at(-1), /down>up|trusted/, 'and stays')
    }
  }
})

t.test('a path that is slow and varies is up after its first answer, and never down', async (t) => {
  const paths = fc.record({
    rttMs: fc.integer({ min: 1, max: 4000 }),
    varies: fc.array(fc.double({ min: -0.5, max: 0.5, noNaN: true }), { minLength: 1, maxLength: 40 }),
    isBusy: fc.boolean(),
  })
  await fc.assert(
    fc.asyncProperty(paths, async ({ rttMs, varies, isBusy }) => {
      const { clock, probes, seen, busy, stop } = setUp({ teardown: () => undefined })
      let asked = 0
      probes.alive.add(PARIS.address)
      if (isBusy) busy.add(PARIS.key)
      probes.delay = {
        clock,
        get ms() {
          return rttMs * (1 + (varies[asked++ % varies.length] ?? 0))
        },
      }
      await clock.advance(1.5 * rttMs + 300)
      assert.match(seen[0] ?? '', /connecting>up/)
      await clock.advance(60_000)
      assert.ok(!seen.some((text) => text.includes('>down')), seen.join('; '))
      await stop()
    }),
    { numRuns: 60 },
  )
  t.pass()
})

t.test('answers that waited in a queue do not make a dead path noticed later', async (t) => {
  const rows = [
    { what: 'the path was away, and packets waited for it', kernel: false, waitsMs: 20_000, late: 0 },
    { what: 'the far process was stopped', kernel: true, waitsMs: 9000, late: 0 },
    { what: 'one answer came very late', kernel: false, waitsMs: 0, late: 1 },
  ]
  for (const { what, kernel, waitsMs, ...row } of rows) {
    const { clock, probes, seen, prober } = setUp(t)
    let [untilMs, late] = [0, 0]
    probes.alive.add(PARIS.address)
    if (kernel) probes.kernels.add(PARIS.address)
    probes.delay = {
      clock,
      get ms() {
        return late-- > 0 ? 9000 : Math.max(0, untilMs - clock.monotonic()) + 20
      },
    }
    await clock.advance(15_000)
    untilMs = clock.monotonic() + waitsMs
    late = row.late
    await clock.advance(Math.max(waitsMs, late * 10_000) + 2500)
    t.equal(prober.health().get('paris')?.state, 'up', what)
    probes.alive.clear()
    probes.kernels.clear()
    const diedMs = clock.monotonic()
    await clock.advance(10_000)
    const down = seen.findLast((text) => text.includes('up>down')) ?? ''
    const tookMs = parseInt(down, 10) - diedMs
    t.ok(tookMs > 0 && tookMs <= 3000, `${what}: noticed after ${tookMs} ms`)
  }
})

t.test('a lane that opens is noticed at once: by the first question, and by who takes it over', async (t) => {
  const { clock, probes, seen, prober, questions } = setUp(t)
  await clock.advance(450)
  probes.alive.add(PARIS.address)
  const question: Probe = { type: 'question', lane: 0, session: 7, sequence: 1, sentMicros: 0n }
  probes.receive(OWN, PARIS.address, encodeProbe(question))
  await clock.advance(1)
  t.strictSame(seen, ['450 paris connecting>up'])
  const before = questions()
  prober.setPeers([{ ...PARIS, identity: 'another' }])
  prober.setPeers([{ ...PARIS, identity: 'a third' }])
  t.equal(questions(), before, 'once in an interval')
  await clock.advance(220)
  const after = questions()
  prober.setPeers([{ ...PARIS, identity: 'a fourth' }])
  prober.setPeers([{ ...PARIS, identity: 'a fifth' }])
  t.equal(questions(), after + 1)
})

t.test('a far process that is silent is not a lane that is down, while its kernel answers', async (t) => {
  const { clock, probes, seen, prober } = setUp(t)
  probes.kernels.add(PARIS.address)
  await clock.advance(1000)
  t.strictSame(seen, [], 'one that was never heard is not taken for up')
  probes.alive.add(PARIS.address)
  await clock.advance(600)
  probes.alive.clear()
  await clock.advance(10_000)
  t.match(seen, [/paris connecting>up$/])
  t.equal(seen.length, 1)
  t.equal(prober.health().get('paris')?.kernelOnly, true)
  probes.kernels.clear()
  await clock.advance(5000)
  t.match(seen.slice(1), [/doubted/, /up>down/], 'now it is')
  await clock.advance(20_000)
  probes.kernels.add(PARIS.address)
  await clock.advance(5000)
  t.match(seen[3], 'down>up', 'the path is back, though the process is not')
  probes.alive.add(PARIS.address)
  await clock.advance(3000)
  t.equal(prober.health().get('paris')?.kernelOnly, false)
  t.equal(seen.length, 4)
})

t.test('peers that stay keep their state, others start anew', async (t) => {
  const { clock, probes, prober } = setUp(t)
  probes.alive.add(PARIS.address)
  await clock.advance(300)
  prober.setPeers([PARIS, TOKYO])
  t.strictSame(
    [...prober.health()].map(([id, view]) => `${id} ${view.state}`),
    ['paris up', 'tokyo connecting'],
  )
  prober.setPeers([{ ...PARIS, key: 'lyon' }])
  t.strictSame(
    [...prober.health()].map(([id, view]) => `${id} ${view.state}`),
    ['lyon connecting'],
    'another cluster at the same address',
  )
})

t.test('answers are checked', async (t) => {
  const { clock, probes, prober } = setUp(t)
  await clock.advance(10)
  const asked = decodeProbe(probes.sent[0]!.bytes)!
  const answer: Probe = { ...asked, type: 'answer' }
  const bad: [say: string, from: string, bytes: Buffer, port?: number][] = [
    ['from somebody else', TOKYO.address, encodeProbe(answer)],
    ['from another port', PARIS.address, encodeProbe(answer), 5000],
    ['of another lane', PARIS.address, encodeProbe({ ...answer, lane: 1 })],
    ['of another session', PARIS.address, encodeProbe({ ...answer, session: (answer.session ^ 1) >>> 0 })],
    ['of a probe that was not sent', PARIS.address, encodeProbe({ ...answer, sequence: 99 })],
    ['too short', PARIS.address, encodeProbe(answer).subarray(0, PROBE_BYTES - 1)],
    ['too long', PARIS.address, Buffer.concat([encodeProbe(answer), Buffer.alloc(1)])],
    ['about a size', PARIS.address, encodeProbe({ ...asked, type: 'sizedAnswer', size: 1440, carries: 0 })],
    ['empty', PARIS.address, Buffer.alloc(0)],
  ]
  for (const [say, from, bytes, port] of bad) {
    probes.receive(OWN, from, bytes, port)
    t.equal(prober.health().get('paris')!.state, 'connecting', say)
  }
  probes.receive(OWN, PARIS.address, encodeProbe(answer))
  t.equal(prober.health().get('paris')!.state, 'up', 'the right one counts')
})

t.test('questions of peers are answered, of others not', async (t) => {
  const { clock, probes } = setUp(t)
  await clock.advance(10)
  probes.sent.length = 0
  const question: Probe = { type: 'question', lane: 0, session: 7, sequence: 8, sentMicros: 9n }
  probes.receive(OWN, '246.0.9.0', encodeProbe(question))
  t.equal(probes.sent.length, 0)
  probes.receive(OWN, PARIS.address, encodeProbe(question))
  const said = probes.sent.map(({ to, bytes }) => ({ to, probe: decodeProbe(bytes) }))
  t.strictSame(said[0], { to: PARIS.address, probe: { ...question, type: 'answer' } })
  t.match(
    said.slice(1),
    [{ to: PARIS.address, probe: { type: 'question' } }],
    'and asked in turn: it was not heard before',
  )
})

t.test('a question has the number of who asks, an answer repeats it', async (t) => {
  const { clock, probes, prober } = setUp(t)
  const second = '246.0.2.5'
  prober.setPeers([PARIS, { key: 'second', number: 5, address: second }])
  probes.alive.add(second)
  await clock.advance(300)
  t.strictSame(
    [...prober.health()].map(([key, { state }]) => `${key} ${state}`),
    ['paris connecting', 'second up'],
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
  probes.alive.add(PARIS.address)
  await clock.advance(300)
  probes.fail(OWN, 'bind EADDRNOTAVAIL')
  t.strictSame(logger.messages('warn'), ['the probe socket failed; opening it again'])
  await clock.advance(900)
  t.equal(prober.health().get('paris')!.suspected, true)
  t.equal(probes.opened, 1, 'not at once')
  await clock.advance(1500)
  t.equal(probes.opened, 2)
  t.equal(prober.health().get('paris')!.state, 'up')
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
  const sized = fc.record({
    type: fc.constantFrom('sizedQuestion' as const, 'sizedAnswer' as const),
    lane: fc.nat(255),
    session: fc.nat(0xffffffff),
    sequence: fc.nat(0xffffffff),
    sentMicros: fc.bigInt({ min: 0n, max: (1n << 64n) - 1n }),
    size: fc.integer({ min: PROBE_BYTES + PROBE_HEADERS, max: 9000 }),
    carries: fc.nat(0xffff),
  })
  fc.assert(
    fc.property(sized, fc.nat(9000), (p, length) => {
      const bytes = encodeProbe(p)
      assert.equal(bytes.length, p.type === 'sizedQuestion' ? p.size - PROBE_HEADERS : PROBE_BYTES)
      assert.deepEqual(decodeProbe(bytes), { ...p })
      if (length < bytes.length) assert.equal(decodeProbe(bytes.subarray(0, length)), undefined, 'cut')
    }),
    { numRuns: 200 },
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), fc.boolean(), (bytes, isProbe) => {
      const packet = Buffer.from(bytes)
      if (isProbe && packet.length >= 4) packet.write('SLP1')
      decodeProbe(packet)
    }),
  )
  t.pass()
})
