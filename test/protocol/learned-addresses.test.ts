/** The list of broker addresses: over the wire, ignored by members of the last release, and stored in the identity. */
import t from 'tap'
import { MAX_NAMED_ADDRESSES } from '../../protocol/broker-addresses.ts'
import { decodeWatchMessage, encodeWatchMessage } from '../../protocol/codec/messages-codec.ts'
import {
  type IdentityPart,
  type MemberIdentity,
  decodeMemberIdentity,
  encodeMemberIdentity,
} from '../../protocol/membership/member-files.ts'
import type { ClusterId } from '../../model/ids.ts'
import { authority, member } from './site.ts'

/** The message `reset { epoch: "e1", resumed: true }` as the last release sent it. */
const EARLIER = Buffer.from('0a060a0265311001', 'hex')

t.test('a reset of the last release, and one with addresses', async (t) => {
  const plain = { t: 'reset', epoch: 'e1', resumed: true } as const
  t.same(decodeWatchMessage(EARLIER), plain)
  t.equal(Buffer.from(encodeWatchMessage(plain)).toString('hex'), EARLIER.toString('hex'))
  const named = { ...plain, addresses: ['a:1', 'b:2'] }
  const bytes = Buffer.from(encodeWatchMessage(named))
  t.same(decodeWatchMessage(bytes), named)
  // An earlier member skips an unknown field, so the fields that it knows must be unchanged and in the same place.
  t.equal(bytes.subarray(2, 2 + EARLIER.length - 2).toString('hex'), EARLIER.subarray(2).toString('hex'))
  t.equal(bytes[2 + EARLIER.length - 2], (10 << 3) | 2, 'a text in field 10')
})

t.test('learned addresses are kept with the identity, and never in the way of it', async (t) => {
  const by = await authority('demo')
  const own = await member(by, 'milano')
  const identity: MemberIdentity = {
    cluster: 'milano' as ClusterId,
    clusterset: 'demo',
    brokerAddresses: ['a.example:7443'],
    observedAddress: '192.0.2.1',
    key: own.key,
    certificate: own.certificate,
    caBundle: [by.ca.certificate],
  }
  const kept = (parts: Record<IdentityPart, string>): MemberIdentity | undefined =>
    decodeMemberIdentity(parts, (part) => part)
  const learnedAddresses = ['b.example:7443', '[2001:db8::1]:443']
  t.same(kept(encodeMemberIdentity({ ...identity, learnedAddresses }))?.learnedAddresses, learnedAddresses)
  t.same(kept(encodeMemberIdentity(identity))?.learnedAddresses, undefined)
  t.notMatch(encodeMemberIdentity({ ...identity, learnedAddresses: [] })['broker.json'], 'learned')
  const rows: readonly (readonly [unknown, readonly string[] | undefined])[] = [
    ['b.example:1', undefined],
    [{}, undefined],
    [[1, null, 'no address', 'b.example:1'], ['b.example:1']],
    [
      Array.from({ length: 100 }, (_, i) => `b${i}.example`),
      Array.from({ length: MAX_NAMED_ADDRESSES }, (_, i) => `b${i}.example:7443`),
    ],
  ]
  for (const [learned, want] of rows) {
    const parts = encodeMemberIdentity(identity)
    const facts = JSON.parse(parts['broker.json']) as object
    const read = kept({ ...parts, 'broker.json': JSON.stringify({ ...facts, learned }) })
    t.same(read?.learnedAddresses, want)
    t.same(read?.brokerAddresses, identity.brokerAddresses)
  }
})
