import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { agreementOf } from '../../../../gateway/cable/agreement.ts'
import {
  ANSWER_BYTES,
  BIND_MAGIC,
  type BindAnswer,
  MAPPINGS,
  QUESTION_BYTES,
  REFUSALS,
  bindKey,
  decodeAnswer,
  decodeQuestion,
  encodeAnswer,
  encodeQuestion,
  endId,
  namedEnds,
} from '../../../../gateway/reach/frames/bind-frame.ts'
import { generateWireguardKey } from '../../../../kernel/wireguard/wireguard-device.ts'

const KEY = randomBytes(32)
const OTHER = randomBytes(32)

const id = fc.uint8Array({ minLength: 8, maxLength: 8 }).map((octets) => Buffer.from(octets).toString('hex'))
const cookie = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((octets) => Buffer.from(octets))
const counter = fc.maxSafeNat()
const port = fc.integer({ min: 1, max: 65_535 })
const mapping = fc.constantFrom(...MAPPINGS)
const question = fc.record({ from: id, to: id, counter, cookie, mapping })
const head = { from: id, to: id, counter }
const address = fc.bigInt({ min: 0n, max: 0xffffffffn }).map((value) => ({ family: 4, value }) as const)
const answer: fc.Arbitrary<BindAnswer> = fc.oneof(
  fc.record({ ...head, type: fc.constant('challenge' as const), cookie }),
  fc.record({ ...head, type: fc.constant('assigned' as const), port }),
  fc.record({
    ...head,
    type: fc.constant('bound' as const),
    port,
    seen: fc.record({ address, port }),
    far: fc.record({ at: fc.record({ address, port }), mapping, sharedMs: fc.integer({ min: 0, max: 0xfffffffe }) }),
    lifeMs: fc.integer({ min: 1, max: 0xffffffff }),
    cookie,
  }),
  fc.record({
    ...{ ...head, type: fc.constant('bound' as const), port, cookie },
    seen: fc.record({ address, port }),
    lifeMs: fc.integer({ min: 1, max: 0xffffffff }),
  }),
  fc.record({
    ...head,
    type: fc.constant('refused' as const),
    why: fc.constantFrom(...REFUSALS),
    port: fc.integer({ min: 0, max: 65_535 }),
    newest: counter,
  }),
)

t.test('a time that the form has no room for is none', async (t) => {
  const at = { address: { family: 4, value: 1n }, port: 1 } as const
  for (const sharedMs of [0xffffffff, 2 ** 40, undefined]) {
    const one: BindAnswer = {
      ...{ type: 'bound', from: '11'.repeat(8), to: '22'.repeat(8), counter: 1, port: 1, seen: at, lifeMs: 1 },
      ...{ cookie: Buffer.alloc(16), far: { at, mapping: 'unknown', sharedMs } },
    }
    t.match(decodeAnswer(encodeAnswer(one, KEY), KEY), { far: { at, sharedMs: undefined } })
  }
})

t.test('what is encoded is decoded, by the same key alone', async (t) => {
  fc.assert(
    fc.property(question, (one) => {
      const bytes = encodeQuestion(one, KEY)
      t.same(decodeQuestion(bytes, KEY), one)
      t.same(namedEnds(bytes), { from: one.from, to: one.to })
      t.equal(decodeQuestion(bytes, OTHER), undefined)
      t.equal(decodeAnswer(bytes, KEY), undefined, 'a question is no answer')
    }),
    { numRuns: 100 },
  )
  fc.assert(
    fc.property(answer, (one) => {
      const bytes = encodeAnswer(one, KEY)
      t.same(decodeAnswer(bytes, KEY), one)
      t.equal(decodeAnswer(bytes, OTHER), undefined)
      t.equal(decodeQuestion(bytes, KEY), undefined)
    }),
    { numRuns: 200 },
  )
})

t.test('an answer is never longer than its question, and neither begins like a packet of a cable', async (t) => {
  const ends = { from: '00'.repeat(8), to: '11'.repeat(8), counter: 7 }
  const cookie = Buffer.alloc(16)
  const said = encodeAnswer({ ...ends, type: 'challenge', cookie }, KEY)
  t.ok(said.length <= encodeQuestion({ ...ends, cookie, mapping: 'unknown' }, KEY).length)
  // Types 1 to 4 of WireGuard, and the four zeros before IKE in UDP (RFC 3948).
  for (const word of [0x01000000, 0x02000000, 0x03000000, 0x04000000, 0]) t.not(BIND_MAGIC, word)
})

t.test('one octet that was changed', async (t) => {
  const one = {
    from: '00'.repeat(8),
    to: '11'.repeat(8),
    counter: 7,
    cookie: Buffer.alloc(16),
    mapping: 'unknown' as const,
  }
  const bytes = encodeQuestion(one, KEY)
  const said = encodeAnswer({ ...one, type: 'assigned', port: 4601 }, KEY)
  const unread: number[] = []
  for (let i = 0; i < bytes.length; i++) {
    const changed = Buffer.from(bytes)
    changed.writeUInt8(changed.readUInt8(i) ^ 1, i)
    if (decodeQuestion(changed, KEY) === undefined) unread.push(i)
  }
  t.equal(unread.length, QUESTION_BYTES)
  for (let i = 0; i < said.length; i++) {
    const changed = Buffer.from(said)
    changed.writeUInt8(changed.readUInt8(i) ^ 0x80, i)
    if (decodeAnswer(changed, KEY) === undefined) unread.push(i)
  }
  t.equal(unread.length, QUESTION_BYTES + ANSWER_BYTES)
})

t.test('any octets at all: no answer, and nothing is thrown', async (t) => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), fc.boolean(), (octets, isMagic) => {
      const bytes = Buffer.from(octets)
      if (isMagic && bytes.length >= 5) bytes.writeUInt32BE(BIND_MAGIC, 0)
      t.equal(decodeQuestion(bytes, KEY), undefined)
      t.equal(decodeAnswer(bytes, KEY), undefined)
      namedEnds(bytes)
    }),
    { numRuns: 300 },
  )
})

t.test('both sides agree on one key, which depends on everything', async (t) => {
  const [relay, end, third] = [generateWireguardKey(), generateWireguardKey(), generateWireguardKey()]
  const agreed = (own: typeof relay, far: typeof relay): Buffer =>
    agreementOf(own.privateKey)(far.publicKey) ?? Buffer.alloc(0)
  const names = { clusterset: 'alps', relay: relay.publicKey, end: end.publicKey }
  const key = bindKey({ secret: agreed(relay, end), ...names })
  t.same(bindKey({ secret: agreed(end, relay), ...names }), key)
  t.notSame(bindKey({ secret: agreed(third, relay), ...names }), key, 'another private key')
  t.notSame(bindKey({ secret: agreed(end, relay), ...names, clusterset: 'andes' }), key)
  t.notSame(bindKey({ secret: agreed(end, relay), ...names, end: third.publicKey }), key)
  t.notSame(bindKey({ secret: agreed(end, relay), ...names, relay: third.publicKey }), key)
  t.notSame(key, agreed(end, relay), 'the secret itself is never used')
  t.not(endId('alps', end.publicKey), endId('andes', end.publicKey))
})

t.test('identities with which nothing is agreed', async (t) => {
  const agree = agreementOf(generateWireguardKey().privateKey)
  const small = Buffer.alloc(32)
  small.writeUInt8(1, 0)
  for (const identity of ['', 'x', Buffer.alloc(31).toString('base64'), Buffer.alloc(33).toString('base64')])
    t.equal(agree(identity), undefined, identity)
  t.equal(agree(Buffer.alloc(32).toString('base64')), undefined, 'zero')
  t.equal(agree(small.toString('base64')), undefined, 'a point of small order')
  const secret = 'not-a-key'
  t.throws(() => agreementOf(secret), { name: 'TypeError', message: /expected 32 octets/ })
  try {
    agreementOf(secret)
  } catch (error) {
    t.notMatch(String(error), secret)
  }
})
