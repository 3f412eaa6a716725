/**
 * Notices survive encoding and decoding, nothing else is decoded as one, and a probe is never read as a notice or the
 * reverse.
 */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  type Notice,
  decodeNotice,
  decodeProbe,
  encodeNotice,
  encodeProbe,
} from '../../../kernel/probing/probe-packet.ts'

const notices: fc.Arbitrary<Notice> = fc.record({
  type: fc.constantFrom('notice' as const, 'receipt' as const),
  lane: fc.nat(255),
  mark: fc.nat(0xffffffff),
  step: fc.constantFrom('known' as const, 'soon' as const, 'now' as const),
})

t.test('there and back', async () => {
  fc.assert(
    fc.property(notices, (notice) => {
      const bytes = encodeNotice(notice)
      assert.deepEqual(decodeNotice(bytes), { ...notice })
      assert.equal(decodeProbe(bytes), undefined, 'an earlier release lets it be')
    }),
  )
})

t.test('a changed octet is noticed where nothing may change, and nothing throws', async (t) => {
  const bytes = encodeNotice({ type: 'notice', lane: 3, mark: 7, step: 'soon' })
  for (const at of [0, 1, 2, 3, 4, 6, 7, 12, 13, 14, 16, 23, 24, 31]) {
    const changed = Buffer.from(bytes)
    changed.writeUInt8(bytes.readUInt8(at) ^ 0x80, at)
    t.equal(decodeNotice(changed), undefined, `octet ${at}`)
  }
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (any) => {
      const notice = decodeNotice(Buffer.from(any))
      assert.ok(notice === undefined || encodeNotice(notice).equals(Buffer.from(any)))
    }),
  )
  const probe = encodeProbe({ type: 'question', lane: 0, session: 1, sequence: 1, sentMicros: 1n })
  t.equal(decodeNotice(probe), undefined)
})
