/** What a relay answers to ends that measure whom their NAT lets in, and the form of these messages. */
import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { NO_COOKIE, decodeAnswer, endId, withMac } from '../../../../gateway/reach/frames/bind-frame.ts'
import {
  ECHO_QUESTION_BYTES,
  ECHO_WAYS,
  type EchoQuestion,
  decodeEcho,
  decodeEchoAnswer,
  encodeEcho,
  encodeEchoAnswer,
  namedEcho,
} from '../../../../gateway/reach/frames/echo-frame.ts'
import { PLACES_AT_ADDRESS } from '../../../../gateway/reach/relay-server/measure-answers.ts'
import { namedHold } from '../../../../gateway/reach/frames/hold-frame.ts'
import { type AddressPort, formatAddressPort, parseAddressPort } from '../../../../model/addresses/addresses.ts'
import { CLUSTERSET, CONTROL, RelayStage, type TestEnd } from '../../support/relay-stage.ts'

const A = '198.51.100.1:40001'

interface EchoInit extends Partial<Pick<EchoQuestion, 'way' | 'place' | 'cookie'>> {
  readonly at?: string
  readonly port?: number
  readonly to?: string
  readonly key?: Buffer
}

function bytesOf(stage: RelayStage, end: TestEnd, init: EchoInit = {}): Buffer {
  const { cookie = NO_COOKIE, way = 'none', place, key = end.key } = init
  const { to = endId(CLUSTERSET, stage.keys.publicKey) } = init
  const question = { from: end.id, to, counter: ++end.counter, cookie, way }
  return encodeEcho({ ...question, ...(place === undefined ? {} : { place }) }, key)
}

function cookieFor(stage: RelayStage, end: TestEnd, at = A): Buffer {
  const { answer } = stage.send(bytesOf(stage, end), at)
  const challenge = answer === undefined ? undefined : decodeAnswer(answer, end.key)
  if (challenge?.type !== 'challenge') throw new Error('no challenge')
  return challenge.cookie
}

const seenIn = (answer: Buffer | undefined, end: TestEnd) =>
  answer === undefined ? undefined : decodeEchoAnswer(answer, end.key)

t.test('an end whose address is proven gets what it asks for, at that address alone', async (t) => {
  const stage = new RelayStage()
  const end = stage.end('paris')
  const cookie = cookieFor(stage, end)
  const ask = (init: EchoInit) => {
    const { answer, second, isChanged } = stage.send(bytesOf(stage, end, { cookie, ...init }), init.at ?? A)
    t.notOk(isChanged)
    t.ok((answer?.length ?? 0) + (second?.answer.length ?? 0) <= ECHO_QUESTION_BYTES, 'no more than was asked with')
    const to = second === undefined ? undefined : formatAddressPort(second.to)
    return [seenIn(answer, end)?.type, second?.leaves, to, seenIn(second?.answer, end)?.type]
  }
  const place = (text: string): EchoInit => ({ way: 'place', place: parseAddressPort(text) })
  t.strictSame(ask({ way: 'none' }), ['single', undefined, undefined, undefined])
  t.strictSame(ask({ way: 'port' }), ['echo', 'other port', A, 'second'])
  t.strictSame(ask(place('198.51.100.1:40002')), ['echo', 'control port', '198.51.100.1:40002', 'second'])
  t.strictSame(ask(place('198.51.100.2:40002')), ['single', undefined, undefined, undefined], 'not to a third party')
  t.equal(stage.bindings.pairCount, 0, 'it has no port of the relay')
})

t.test('a question that is not well asked gets nothing, or a challenge', async (t) => {
  const stage = new RelayStage()
  const [end, other] = [stage.end('paris'), stage.end('oslo')]
  const cookie = cookieFor(stage, end)
  const sent = (init: EchoInit): string => {
    const { outcome, second } = stage.send(
      bytesOf(stage, end, { cookie, way: 'port', ...init }),
      init.at ?? A,
      init.port,
    )
    t.equal(second, undefined)
    return outcome ?? ''
  }
  t.equal(sent({ at: '198.51.100.2:40001' }), 'challenge', 'the cookie is of another address')
  t.equal(sent({ at: '198.51.100.1:40002' }), 'challenge', 'and of another port')
  t.equal(sent({ cookie: NO_COOKIE }), 'challenge')
  t.equal(sent({ port: CONTROL + 1 }), 'malformed', 'only at the control port')
  t.equal(sent({ to: other.id }), 'malformed', 'to another relay')
  t.equal(sent({ key: other.key }), 'wrongMac')
  t.equal(sent({ at: '127.0.0.1:40001' }), 'badSource')
  stage.allow([other])
  t.equal(sent({}), 'unknownEnd', 'no member any more')
})

t.test('an end gets a bounded number of answers, and others are not affected', async (t) => {
  const stage = new RelayStage()
  const [end, other] = [stage.end('paris'), stage.end('oslo')]
  const [cookie, others] = [cookieFor(stage, end), cookieFor(stage, other)]
  const outcomes = Array.from(
    { length: 200 },
    () => stage.send(bytesOf(stage, end, { cookie, way: 'port' }), A).outcome,
  )
  const answered = outcomes.filter((outcome) => outcome === 'echo').length
  t.ok(answered >= 24 && answered <= 40, `${answered} of 200`)
  t.equal(stage.send(bytesOf(stage, other, { cookie: others }), A).outcome, 'single')
  await stage.clock.advance(5000)
  t.equal(stage.send(bytesOf(stage, end, { cookie }), A).outcome, 'single', 'later again')
})

t.test('behind a carrier, few packets go to ports that may be those of others', async (t) => {
  const stage = new RelayStage()
  const ends = Array.from({ length: 40 }, (_, i) => stage.end(`m${i}`))
  const scan = (end: TestEnd, at: string, cookie: Buffer, count: number): number =>
    Array.from({ length: count }, (_, i) => {
      const place = parseAddressPort(`${at.split(':')[0] ?? ''}:${10_000 + i}`)
      return stage.send(bytesOf(stage, end, { cookie, way: 'place', place }), at).outcome
    }).filter((outcome) => outcome === 'echo').length
  let all = 0
  for (const [i, end] of ends.entries()) {
    // Each has a port of its own, and the tenth of them another address.
    const at = i === 10 ? '198.51.100.9:40001' : `198.51.100.1:${41_000 + i}`
    const found = scan(end, at, cookieFor(stage, end, at), 30)
    t.ok(found <= 6, `${found} for one end`)
    if (i === 10) t.equal(found, 6, 'another address has its own count')
    else all += found
  }
  t.equal(all, PLACES_AT_ADDRESS)
  const [first] = ends
  if (first === undefined) throw new Error('no end')
  await stage.clock.advance(110_000)
  const at = '198.51.100.1:41000'
  const again = scan(first, at, cookieFor(stage, first, at), 3)
  t.ok(again >= 2, `${again}: a measurement later finds room`)
  const own = stage.send(bytesOf(stage, first, { cookie: cookieFor(stage, first, at), way: 'port' }), at)
  t.equal(own.outcome, 'echo', 'the port that asks is proven')
})

t.test('the form of the messages', async (t) => {
  const key = randomBytes(32)
  const place = fc
    .record({ value: fc.bigInt({ min: 1n, max: 0xffffffffn }), port: fc.integer({ min: 1, max: 65_535 }) })
    .map(({ value, port }): AddressPort => ({ address: { family: 4, value }, port }))
    .filter(({ address, port }) => !(address.value === 0x534c5231n && port === 0x534c))
  const id = fc.string({ minLength: 16, maxLength: 16, unit: fc.constantFrom(...Array.from('0123456789abcdef')) })
  const counter = fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER })
  const question = fc
    .record({
      ...{ from: id, to: id, counter, place, way: fc.constantFrom(...ECHO_WAYS) },
      cookie: fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => Buffer.from(bytes)),
    })
    .map(({ place: at, ...one }): EchoQuestion => (one.way === 'place' ? { ...one, place: at } : one))
  const flips = fc.array(fc.tuple(fc.nat(175), fc.integer({ min: 1, max: 255 })), { minLength: 1, maxLength: 3 })
  fc.assert(
    fc.property(question, place, flips, (one, seen, changes) => {
      const bytes = encodeEcho(one, key)
      t.equal(bytes.length, ECHO_QUESTION_BYTES)
      t.strictSame(decodeEcho(bytes, key), one)
      t.equal(namedHold(bytes), undefined, 'no question of another measurement')
      t.equal(decodeEcho(bytes, randomBytes(32)), undefined)
      const { from, to, counter: number } = one
      for (const type of ['echo', 'second', 'single'] as const) {
        const answer = { type, from, to, counter: number, seen }
        t.strictSame(decodeEchoAnswer(encodeEchoAnswer(answer, key), key), answer)
      }
      const changed = Buffer.from(bytes)
      for (const [at, by] of changes) changed[at] = (changed[at] ?? 0) ^ by
      if (!changed.equals(bytes)) t.equal(decodeEcho(changed, key), undefined, 'the MAC is over all octets')
      // A member that signs anything at all is read without an exception, and never as something else.
      const signed = decodeEcho(withMac(changed, key), key)
      if (signed !== undefined) t.ok(encodeEcho(signed, key).equals(changed))
    }),
    { numRuns: 200 },
  )
  for (const length of [0, 1, 88, 175, 177]) t.equal(namedEcho(Buffer.alloc(length)), undefined)
})
