import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import {
  type Frame,
  MAX_DATAGRAM_BYTES,
  MAX_FRAME_BYTES,
  MAX_WANTS,
  RELAY_REFUSALS,
  decodeFrame,
  encodeFrame,
  endName,
  isProofMac,
  proofMac,
} from '../../../runtime/datagrams/frames.ts'

const octets = (minLength: number, maxLength = minLength) =>
  fc.uint8Array({ minLength, maxLength }).map((bytes) => Buffer.from(bytes))
const end = octets(8).map((bytes) => bytes.toString('hex'))
const time = fc.maxSafeNat()
const frame: fc.Arbitrary<Frame> = fc.oneof(
  fc.record({
    t: fc.constant('challenge' as const),
    version: fc.nat(255),
    nonce: octets(32),
    key: octets(32),
    timeMs: time,
  }),
  fc.record({ t: fc.constant('proof' as const), identity: octets(32), mac: octets(32), ticket: octets(1, 500) }),
  fc.constant({ t: 'welcome' as const }),
  fc.record({ t: fc.constant('refused' as const), why: fc.constantFrom(...RELAY_REFUSALS), timeMs: time }),
  fc.record({ t: fc.constantFrom('wants' as const, 'present' as const), ends: fc.array(end, { maxLength: 40 }) }),
  fc.record({
    t: fc.constant('datagrams' as const),
    datagrams: fc.array(fc.record({ end, bytes: octets(1, 1500) }, { noNullPrototype: true }), {
      minLength: 1,
      maxLength: 20,
    }),
  }),
  fc.record({ t: fc.constant('restarting' as const), againMs: fc.nat(0xffffffff) }),
)

t.test('what is encoded is decoded again', async (t) => {
  fc.assert(
    fc.property(frame, (one) => isDeepStrictEqual({ ...decodeFrame(encodeFrame(one)) }, { ...one })),
    { numRuns: 200 },
  )
  t.pass('200 frames')
})

t.test('octets of anybody never throw, and a frame that is cut is none', async (t) => {
  fc.assert(
    fc.property(octets(0, 300), fc.nat(9), (bytes, type) => {
      if (bytes.length > 0) bytes[0] = type
      const read = decodeFrame(bytes)
      return read === undefined || isDeepStrictEqual(decodeFrame(encodeFrame(read)), read)
    }),
  )
  fc.assert(
    fc.property(frame, fc.nat(), (one, cut) => {
      const bytes = encodeFrame(one)
      const part = bytes.subarray(0, cut % bytes.length)
      const read = decodeFrame(part)
      // A list may end after each of its entries, and a ticket anywhere.
      return read === undefined || /^(wants|present|datagrams|proof)$/.test(read.t)
    }),
  )
  t.pass('no frame was read that is none')
})

t.test('sizes are bounded', async (t) => {
  const one = { end: '00'.repeat(8), bytes: Buffer.alloc(MAX_DATAGRAM_BYTES) }
  t.ok(decodeFrame(encodeFrame({ t: 'datagrams', datagrams: [one] })))
  const more = { ...one, bytes: Buffer.alloc(MAX_DATAGRAM_BYTES + 1) }
  t.equal(decodeFrame(encodeFrame({ t: 'datagrams', datagrams: [more] })), undefined)
  t.equal(decodeFrame(encodeFrame({ t: 'datagrams', datagrams: [{ ...one, bytes: Buffer.alloc(0) }] })), undefined)
  t.equal(decodeFrame(Buffer.of(7)), undefined, 'a list of none')
  t.throws(() => encodeFrame({ t: 'datagrams', datagrams: Array.from({ length: 8 }, () => one) }), RangeError)
  t.throws(() => encodeFrame({ t: 'wants', ends: Array.from({ length: MAX_WANTS + 1 }, () => one.end) }), RangeError)
  t.equal(decodeFrame(Buffer.alloc(MAX_FRAME_BYTES + 1, 7)), undefined)
  t.equal(decodeFrame(Buffer.alloc(0)), undefined)
})

t.test('a proof is of use for one challenge, one identity and one ticket', async (t) => {
  const challenge = { version: 1, nonce: randomBytes(32), key: randomBytes(32), timeMs: 7 }
  const [secret, identity, ticket] = [randomBytes(32), randomBytes(32), randomBytes(100)]
  const mac = proofMac(secret, challenge, { identity, ticket })
  t.ok(isProofMac(mac, proofMac(secret, challenge, { identity, ticket })))
  for (const other of [
    proofMac(randomBytes(32), challenge, { identity, ticket }),
    proofMac(secret, { ...challenge, nonce: randomBytes(32) }, { identity, ticket }),
    proofMac(secret, { ...challenge, key: randomBytes(32) }, { identity, ticket }),
    proofMac(secret, challenge, { identity: randomBytes(32), ticket }),
    proofMac(secret, challenge, { identity, ticket: randomBytes(100) }),
    mac.subarray(1),
  ])
    t.notOk(isProofMac(mac, other))
  t.not(endName('a', identity), endName('b', identity), 'another clusterset has other names')
})
