/**
 * The fields on the wire and in tokens that a change of authority needs, and how readers of the last release treat
 * them.
 */
import fc from 'fast-check'
import t from 'tap'
import { CodecError } from '../../protocol/codec/codec-checks.ts'
import {
  decodeWatchMessage,
  decodeWatchRequest,
  encodeWatchMessage,
  encodeWatchRequest,
} from '../../protocol/codec/messages-codec.ts'
import * as wire from '../../protocol/gen/broker.ts'
import { createJoinToken, parseJoinToken } from '../../protocol/identity/token.ts'
import { failure } from '../support/failure.ts'

const pin = fc.uint8Array({ minLength: 32, maxLength: 32 }).map((bytes) => Buffer.from(bytes).toString('hex'))

t.test('what the broker says of its authorities goes over the wire as it is', async (t) => {
  const authorities = fc.record({
    bundle: fc.array(pin, { minLength: 1, maxLength: 8 }),
    signing: pin,
    withinMs: fc.nat(),
  })
  fc.assert(
    fc.property(authorities, (said) => {
      const message = { t: 'authorities' as const, ...said }
      t.strictSame(decodeWatchMessage(encodeWatchMessage(message)), message)
    }),
    { numRuns: 50 },
  )
  const resume = { epoch: 'e', revision: 7 }
  for (const request of [
    {},
    { resume },
    { followsAuthorities: true as const },
    { resume, followsAuthorities: true as const },
  ])
    t.strictSame(decodeWatchRequest(encodeWatchRequest(request)), request)
})

t.test('what is no fingerprint, or too many, is refused', async (t) => {
  const good = Buffer.alloc(32)
  const bad = [
    { bundle: [good, Buffer.alloc(31)], signing: good, withinMs: 0 },
    { bundle: [good], signing: Buffer.alloc(33), withinMs: 0 },
    { bundle: Array.from({ length: 9 }, () => good), signing: good, withinMs: 0 },
  ]
  for (const value of bad) {
    const bytes = wire.WatchMessage.encode({ message: { $case: 'authorities', value } }).finish()
    t.ok((await failure(Promise.resolve().then(() => decodeWatchMessage(bytes)))) instanceof CodecError)
  }
})

t.test('a token names all authorities that will do, and the first where an earlier release looks for it', async (t) => {
  const init = { addresses: ['192.0.2.1:7443'], clusterset: 'demo', expiresAtMs: 1000 }
  const [a, b] = ['a'.repeat(64), 'b'.repeat(64)]
  const token = createJoinToken({ ...init, caPin: a, otherPins: [b] })
  const read = parseJoinToken(token.text(), 0)
  t.match(read, { caPin: a, otherPins: [b] })
  const payload = Buffer.from(token.text().slice('sealane1.'.length), 'base64url').subarray(0, -4)
  t.equal((JSON.parse(payload.toString()) as { p: string }).p, a)
  const plain = createJoinToken({ ...init, caPin: a })
  t.strictSame(parseJoinToken(plain.text(), 0).otherPins, [])
  t.notMatch(Buffer.from(plain.text().slice('sealane1.'.length), 'base64url').toString(), '"q"', 'as before')
  for (const otherPins of [['x'], Array.from({ length: 5 }, () => b), [b.toUpperCase()]]) {
    const text = createJoinToken({ ...init, caPin: a, otherPins }).text()
    const refused = await failure(Promise.resolve().then(() => parseJoinToken(text, 0)))
    t.match(refused, { reason: 'TokenMalformed' })
  }
})
