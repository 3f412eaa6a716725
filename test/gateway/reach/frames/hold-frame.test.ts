/** What an end and a relay say while the life of a NAT's mapping is measured. */
import { randomBytes } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import {
  ANSWER_BYTES,
  BIND_MAGIC,
  decodeAnswer,
  decodeQuestion,
  namedEnds,
} from '../../../../gateway/reach/frames/bind-frame.ts'
import {
  HOLD_QUESTION_BYTES,
  HOLD_WAITS_MS,
  type HoldAnswer,
  decodeHold,
  decodeHoldAnswer,
  encodeHold,
  encodeHoldAnswer,
  namedHold,
} from '../../../../gateway/reach/frames/hold-frame.ts'
import { decodeProbe } from '../../../../gateway/reach/frames/punch-frame.ts'

const KEY = randomBytes(32)
const OTHER = randomBytes(32)

const id = fc.uint8Array({ minLength: 8, maxLength: 8 }).map((octets) => Buffer.from(octets).toString('hex'))
const cookie = fc.uint8Array({ minLength: 16, maxLength: 16 }).map((octets) => Buffer.from(octets))
const counter = fc.maxSafeNat()
const waitMs = fc.integer({ min: HOLD_WAITS_MS.least, max: HOLD_WAITS_MS.most })
const question = fc.record({ from: id, to: id, counter, cookie, waitMs })
const seen = fc.record({
  address: fc.bigInt({ min: 0n, max: 0xffffffffn }).map((value) => ({ family: 4, value }) as const),
  port: fc.integer({ min: 1, max: 65_535 }),
})
const type = fc.constantFrom<HoldAnswer['type']>('held', 'late', 'full')
const answer = fc.record({ type, from: id, to: id, counter, waitMs, seen })

t.test('what is encoded is decoded, by the same key alone, and is no message of another kind', async (t) => {
  fc.assert(
    fc.property(question, (one) => {
      const bytes = encodeHold(one, KEY)
      t.equal(bytes.readUInt32BE(0), BIND_MAGIC)
      t.same(decodeHold(bytes, KEY), one)
      t.same(namedHold(bytes), { from: one.from, to: one.to })
      t.equal(decodeHold(bytes, OTHER), undefined)
      // As a relay of an earlier release reads it.
      t.equal(namedEnds(bytes), undefined)
      t.equal(decodeQuestion(bytes, KEY), undefined)
    }),
    { numRuns: 100 },
  )
  fc.assert(
    fc.property(answer, (one) => {
      const bytes = encodeHoldAnswer(one, KEY)
      t.same(decodeHoldAnswer(bytes, KEY), one)
      t.equal(decodeHoldAnswer(bytes, OTHER), undefined)
      t.equal(decodeAnswer(bytes, KEY), undefined)
      t.equal(decodeProbe(bytes, KEY), undefined)
    }),
    { numRuns: 100 },
  )
})

t.test('a question is as long as all of its answers', async (t) => {
  t.equal(HOLD_QUESTION_BYTES, 2 * ANSWER_BYTES)
})

t.test('octets that were changed, cut or made up are no messages', async (t) => {
  const one = encodeHold(
    { from: '00'.repeat(8), to: '11'.repeat(8), counter: 7, cookie: Buffer.alloc(16), waitMs: 10_000 },
    KEY,
  )
  for (let at = 0; at < one.length; at++) {
    const changed = Buffer.from(one)
    changed.writeUInt8(changed.readUInt8(at) ^ 1, at)
    t.equal(decodeHold(changed, KEY), undefined, `octet ${at}`)
  }
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (octets) => {
      const bytes = Buffer.from(octets)
      t.equal(decodeHold(bytes, KEY), undefined)
      t.equal(decodeHoldAnswer(bytes, KEY), undefined)
    }),
    { numRuns: 200 },
  )
  for (const waitMs of [0, HOLD_WAITS_MS.least - 1, HOLD_WAITS_MS.most + 1, 0xffffffff]) {
    const bytes = encodeHold(
      { from: '00'.repeat(8), to: '11'.repeat(8), counter: 7, cookie: Buffer.alloc(16), waitMs },
      KEY,
    )
    t.equal(decodeHold(bytes, KEY), undefined, `${waitMs} ms`)
  }
})
