/** What a relay answers to ends that measure for how long their NAT keeps a mapping. */
import fc from 'fast-check'
import t from 'tap'
import { NO_COOKIE, decodeAnswer, endId } from '../../../../gateway/reach/frames/bind-frame.ts'
import { MOST_HELD_OF_MEMBER } from '../../../../gateway/reach/relay-server/measure-answers.ts'
import { decodeHoldAnswer, encodeHold } from '../../../../gateway/reach/frames/hold-frame.ts'
import { formatAddressPort, parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { CLUSTERSET, CONTROL, RelayStage, type TestEnd } from '../../support/relay-stage.ts'

const A = '198.51.100.1:40001'

interface HoldInit {
  readonly at?: string
  readonly port?: number
  readonly cookie?: Buffer
  readonly waitMs?: number
  readonly to?: string
  readonly key?: Buffer
  readonly counter?: number
}

function bytesOf(stage: RelayStage, end: TestEnd, init: HoldInit = {}): Buffer {
  const { cookie = NO_COOKIE, waitMs = 10_000, key = end.key, counter = ++end.counter } = init
  const { to = endId(CLUSTERSET, stage.keys.publicKey) } = init
  return encodeHold({ from: end.id, to, counter, cookie, waitMs }, key)
}

function cookieFor(stage: RelayStage, end: TestEnd, init: HoldInit = {}): Buffer {
  const { answer } = stage.send(bytesOf(stage, end, init), init.at ?? A, init.port)
  const challenge = answer === undefined ? undefined : decodeAnswer(answer, end.key)
  if (challenge?.type !== 'challenge') throw new Error('no challenge')
  return challenge.cookie
}

/** Asks with a cookie. Returns the answer, and the question, which somebody may copy. */
function hold(stage: RelayStage, end: TestEnd, init: HoldInit = {}) {
  const bytes = bytesOf(stage, end, { ...init, cookie: init.cookie ?? cookieFor(stage, end, init) })
  const { answer, outcome } = stage.send(bytes, init.at ?? A, init.port)
  return { bytes, outcome, answer: answer === undefined ? undefined : decodeHoldAnswer(answer, end.key) }
}

const late = (stage: RelayStage) => stage.bindings.apply({ kind: 'late' }).late ?? []

t.test('an end whose address is proven gets one answer at once, and one after the wait', async (t) => {
  const stage = new RelayStage()
  const end = stage.end('paris')
  t.match(hold(stage, end).answer, { type: 'held', waitMs: 10_000, seen: parseAddressPort(A) })
  t.equal(stage.bindings.pairCount, 0, 'it has no port of the relay')
  t.strictSame(late(stage), [])
  await stage.clock.advance(9999)
  t.strictSame(late(stage), [])
  await stage.clock.advance(1)
  const [one, ...others] = late(stage)
  t.strictSame(others, [])
  t.equal(one === undefined ? '' : formatAddressPort(one.to), A)
  t.match(decodeHoldAnswer(one?.answer ?? Buffer.alloc(0), end.key), { type: 'late', seen: parseAddressPort(A) })
  t.strictSame([late(stage), stage.bindings.lateDueMs], [[], Infinity], 'exactly one')
})

t.test('a question that is not well asked gets nothing, or a challenge', async (t) => {
  const stage = new RelayStage()
  const [end, other] = [stage.end('paris'), stage.end('oslo')]
  const cookie = cookieFor(stage, end)
  const sent = (init: HoldInit): string => {
    const { outcome } = stage.send(bytesOf(stage, end, { cookie, ...init }), init.at ?? A, init.port)
    return outcome ?? ''
  }
  t.equal(sent({ at: '198.51.100.2:40001' }), 'challenge', 'the cookie is of another address')
  t.equal(sent({ at: '198.51.100.1:40002' }), 'challenge', 'and of another port')
  t.equal(sent({ port: CONTROL + 1 }), 'malformed', 'only at the control port')
  t.equal(sent({ to: other.id }), 'malformed', 'to another relay')
  t.equal(sent({ key: other.key }), 'wrongMac')
  t.equal(sent({ waitMs: 130_000 }), 'wrongMac', 'longer than any measurement')
  t.equal(sent({ at: '127.0.0.1:40001' }), 'badSource')
  const stranger = { ...end, id: endId('andes', end.identity) }
  t.equal(stage.send(bytesOf(stage, stranger, { cookie }), A).outcome, 'unknownEnd')
  const { bytes } = hold(stage, end, { cookie })
  t.equal(stage.send(bytes, A).outcome, 'stale', 'a copy gets no second late answer')
  await stage.clock.advance(10_000)
  t.equal(late(stage).length, 1)
  t.equal(stage.send(bytes, A).outcome, 'stale', 'nor does it later')
  await stage.clock.advance(10_000)
  t.equal(late(stage).length, 0)
})

t.test('a member has few of them, and other members still have theirs', async (t) => {
  const many = new RelayStage()
  const all = Array.from({ length: 8 }, () => many.end('paris'))
  const held = all.flatMap((end, i) =>
    [1, 2, 3, 4, 5].map((port) => hold(many, end, { at: `198.51.100.${i + 1}:${4000 + port}` }).outcome),
  )
  t.equal(held.filter((outcome) => outcome === 'held').length, MOST_HELD_OF_MEMBER)
  t.equal(held.filter((outcome) => outcome === 'full').length, 40 - MOST_HELD_OF_MEMBER)
  t.equal(hold(many, many.end('oslo'), { at: '192.0.2.1:4000' }).outcome, 'held')
  t.equal(hold(many, all[0] ?? many.end('x'), { at: '198.51.100.1:4001' }).outcome, 'held', 'again for the same port')
})

t.test('an end that may not use the relay any more gets none', async (t) => {
  const stage = new RelayStage()
  const [end, other] = [stage.end('paris'), stage.end('oslo')]
  hold(stage, end)
  hold(stage, other, { at: '192.0.2.1:4000' })
  stage.allow([other])
  await stage.clock.advance(10_000)
  t.strictSame(
    late(stage).map(({ to }) => formatAddressPort(to)),
    ['192.0.2.1:4000'],
  )
})

t.test('no address gets more octets than it has sent, and without a cookie nothing but challenges', async (t) => {
  const step = fc.record({
    at: fc.constantFrom(A, '198.51.100.1:40002', '192.0.2.9:1'),
    hasCookie: fc.boolean(),
    isCopy: fc.boolean(),
    ms: fc.integer({ min: 0, max: 20_000 }),
    waitMs: fc.integer({ min: 1000, max: 30_000 }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const stage = new RelayStage()
      const end = stage.end('paris')
      const [sent, got] = [new Map<string, number>(), new Map<string, number>()]
      const cookies = new Map<string, Buffer>()
      const add = (to: Map<string, number>, at: string, count: number): void => {
        to.set(at, (to.get(at) ?? 0) + count)
      }
      const takeLate = (): void => {
        for (const { to, answer } of late(stage)) {
          add(got, formatAddressPort(to), answer.length)
          t.ok(cookies.has(formatAddressPort(to)), 'the address was proven')
        }
      }
      let last: Buffer | undefined
      for (const { at, hasCookie, isCopy, ms, waitMs } of steps) {
        await stage.clock.advance(ms)
        takeLate()
        const cookie = hasCookie ? (cookies.get(at) ?? NO_COOKIE) : NO_COOKIE
        const bytes = isCopy && last !== undefined ? last : bytesOf(stage, end, { cookie, waitMs })
        last = bytes
        const { answer } = stage.send(bytes, at)
        add(sent, at, bytes.length)
        if (answer === undefined) continue
        add(got, at, answer.length)
        const challenge = decodeAnswer(answer, end.key)
        if (challenge?.type === 'challenge') cookies.set(at, challenge.cookie)
      }
      await stage.clock.advance(125_000)
      takeLate()
      for (const [at, count] of got) t.ok(count <= (sent.get(at) ?? 0), `${at}: ${count}`)
    }),
    { numRuns: 50 },
  )
})

t.test('an end whose clock went back gets to know how far the relay has counted', async (t) => {
  const stage = new RelayStage()
  const end = stage.end('paris')
  const inTenYears = 2_100_000_000_000
  t.match(hold(stage, end, { counter: inTenYears }).answer, { type: 'held' })
  t.match(hold(stage, end, { counter: 7 }).answer, { type: 'stale', newest: inTenYears, counter: 7 })
  t.match(hold(stage, end, { counter: inTenYears + 1 }).answer, { type: 'held' })
})

t.test('copies of a question use up no answers of the end', async (t) => {
  const stage = new RelayStage()
  const [end, far] = [stage.end('paris'), stage.end('oslo')]
  const { bytes } = hold(stage, end)
  const outcomes = Array.from({ length: 500 }, () => stage.send(bytes, A).outcome)
  t.ok(outcomes.filter((outcome) => outcome === 'stale').length <= 60)
  await stage.clock.advance(60_000)
  t.match(hold(stage, end, { at: '198.51.100.1:40002' }).answer, { type: 'held' })
  t.ok(stage.bind(end, far, A) > 0)
})

t.test('an end that measures may still renew its bindings', async (t) => {
  const stage = new RelayStage()
  const [end, far] = [stage.end('paris'), stage.end('oslo')]
  const port = stage.bind(end, far, A)
  for (let i = 0; i < 19; i++) hold(stage, end, { at: `198.51.100.1:${5000 + i}` })
  t.match(stage.prove(end, far, { at: A, port }), { type: 'bound' })
})
