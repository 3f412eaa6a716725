/** The rewrite of ICMP errors on real packets, by a small machine that changes them as nft does. */
import fc from 'fast-check'
import t from 'tap'
import {
  INNER_DESTINATION,
  INNER_SOURCE,
  innerMatch,
  innerRewriteRules,
  sumDifference,
} from '../../../gateway/nft/icmp-errors.ts'
import {
  type Prefix,
  containsAddress,
  formatAddress,
  parsePrefix,
  prefixOf,
  translate,
} from '../../../model/values/ip.ts'
import { applyRules, checksumIsRight, icmpError, innerAddress, withoutAddress } from '../support/icmp-machine.ts'

const OWN = parsePrefix('10.42.0.0/16')
const GLOBAL = parsePrefix('244.7.0.0/16')

t.test('the sum changes by a constant', async (t) => {
  const rows: [from: string, to: string, difference: number][] = [
    // The difference is 0xf407 + 0x0000 - (0x0a2a + 0x0000).
    ['10.42.0.0/16', '244.7.0.0/16', 0xf407 - 0x0a2a],
    ['244.7.0.0/16', '10.42.0.0/16', 0xffff - (0xf407 - 0x0a2a)],
    // Both words have network bits.
    ['10.1.32.0/20', '244.9.16.0/20', 0xf409 + 0x1000 - (0x0a01 + 0x2000)],
    // The words swap places, so the sum stays.
    ['10.42.0.0/31', '0.0.10.42/31', 0],
    ['10.42.0.0/16', '10.42.0.0/16', 0],
  ]
  for (const [from, to, difference] of rows) {
    t.equal(sumDifference(parsePrefix(from), parsePrefix(to)), difference, `${from} to ${to}`)
  }
})

t.test('the rules as nft gets them', async (t) => {
  t.equal(innerMatch(INNER_DESTINATION, OWN), '@th,192,32 & 0xffff0000 == 0x0a2a0000')
  const rules = innerRewriteRules(INNER_DESTINATION, OWN, GLOBAL)
  t.match(
    rules[0],
    'icmp type 3 icmp code 4 @th,192,32 set @th,192,32 & 0x0000ffff | 0xf4070000 @th,0,16 set 0x1926 icmp type set 3 icmp code set 4 return',
  )
  t.match(
    rules.at(-1),
    'icmp type 3 icmp code != 4 @th,48,16 0 @th,192,32 set @th,192,32 & 0x0000ffff | 0xf4070000 @th,48,16 set 0x1622 icmp mtu set 0 return',
  )
  t.equal(rules.length, 7)
})

const prefixes = fc
  .record({ length: fc.integer({ min: 8, max: 31 }), from: fc.nat(), to: fc.nat() })
  .map(({ length, from, to }): [Prefix, Prefix] => [
    prefixOf({ family: 4, value: BigInt(from) }, length),
    prefixOf({ family: 4, value: BigInt(to) * 2n + 1n }, length),
  ])

const errors = fc.record({
  kind: fc.constantFrom(
    ...[...Array(16).keys()].map((code) => ({ type: 3, code })),
    { type: 11, code: 0 },
    { type: 11, code: 1 },
    { type: 12, code: 0 },
    { type: 12, code: 1 },
    { type: 12, code: 2 },
  ),
  host: fc.nat(),
  other: fc.nat(),
  mtu: fc.nat(65535),
  pointer: fc.nat(255),
  payload: fc.uint8Array({ minLength: 8, maxLength: 64 }),
})

t.test('the inner address is translated, the checksum stays right, nothing else changes', async () => {
  fc.assert(
    fc.property(prefixes, errors, fc.constantFrom(INNER_SOURCE, INNER_DESTINATION), ([from, to], error, offset) => {
      const address = {
        family: 4 as const,
        value: from.value + (BigInt(error.host) % (1n << BigInt(32 - from.length))),
      }
      const other = { family: 4 as const, value: BigInt(error.other) }
      const before = icmpError({
        ...error.kind,
        source: offset === INNER_SOURCE ? address : other,
        destination: offset === INNER_DESTINATION ? address : other,
        mtu: error.mtu,
        pointer: error.pointer,
        payload: error.payload,
      })
      const after = Buffer.from(before)
      const applied = applyRules(innerRewriteRules(offset, from, to), after)
      if (!applied) throw new Error('no rule applied')
      if (!containsAddress(from, address) || !checksumIsRight(before)) throw new Error('the test itself is wrong')
      if (!checksumIsRight(after)) throw new Error(`checksum is wrong: ${after.toString('hex')}`)
      const want = formatAddress(translate(address, from, to))
      if (innerAddress(after, offset) !== want)
        throw new Error(`inner address ${innerAddress(after, offset)}, want ${want}`)
      if (!withoutAddress(before, offset).equals(withoutAddress(after, offset)))
        throw new Error('something else changed')
    }),
    { numRuns: 5000 },
  )
})

t.test('there and back again is the same packet', async () => {
  fc.assert(
    fc.property(prefixes, errors, ([from, to], error) => {
      const address = {
        family: 4 as const,
        value: from.value + (BigInt(error.host) % (1n << BigInt(32 - from.length))),
      }
      const before = icmpError({
        ...error.kind,
        source: { family: 4, value: 1n },
        destination: address,
        mtu: error.mtu,
        pointer: error.pointer,
        payload: error.payload,
      })
      const packet = Buffer.from(before)
      applyRules(innerRewriteRules(INNER_DESTINATION, from, to), packet)
      applyRules(innerRewriteRules(INNER_DESTINATION, to, from), packet)
      if (!checksumIsRight(packet)) throw new Error('checksum is wrong')
      // In one's complement 0x0000 and 0xffff are the same number, so all but the checksum is compared.
      before.writeUInt16BE(0, 2)
      packet.writeUInt16BE(0, 2)
      if (!packet.equals(before)) throw new Error('not the same')
    }),
    { numRuns: 2000 },
  )
})

t.test('an error with content where the RFCs want zeros is not touched', async (t) => {
  const packet = icmpError({
    type: 3,
    code: 1,
    source: { family: 4, value: 1n },
    destination: { family: 4, value: OWN.value + 5n },
    mtu: 0,
    pointer: 0,
    payload: new Uint8Array(8),
  })
  packet.writeUInt16BE(7, 6)
  const before = Buffer.from(packet)
  t.notOk(
    applyRules(innerRewriteRules(INNER_DESTINATION, OWN, GLOBAL), packet),
    'falls through to the rule that drops it',
  )
  t.ok(packet.equals(before))
})
