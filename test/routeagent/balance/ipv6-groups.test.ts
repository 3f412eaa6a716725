/** The fast parser agrees with model/values/ip.ts on every text. */
import t from 'tap'
import fc from 'fast-check'
import {
  type Address,
  classifyAddress,
  containsAddress,
  formatAddress,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../../../model/values/ip.ts'
import {
  addressFamily,
  formatGroups,
  ipv6Groups,
  ipv6Network,
  isUsableIpv6,
} from '../../../routeagent/world/address-family.ts'

// Groups of zeros are frequent in addresses, and RFC 5952 has rules for them.
const group = fc.oneof(fc.constant(0), fc.constant(0), fc.constant(1), fc.integer({ min: 0, max: 0xffff }))
const special = fc.constantFrom(...['::', '::1', 'fe80::1', 'febf::', 'fec0::', 'feff::', 'ff02::1', '64:ff9b::1'])
const address = fc.oneof(
  fc
    .array(group, { minLength: 8, maxLength: 8 })
    .map((groups): Address => ({ family: 6, value: groups.reduce((sum, one) => (sum << 16n) | BigInt(one), 0n) })),
  special.map((text) => parseAddress(text)),
)
const groupsOf = (one: Address): readonly number[] => ipv6Groups(formatAddress(one)) ?? []

t.test('read and printed', async (t) => {
  fc.assert(
    fc.property(address, (one) => formatGroups(groupsOf(one)) === formatAddress(one)),
    { numRuns: 5000 },
  )
  for (const [text, want] of [
    ['FD00:0:0:0:0:0:0:000A', 'fd00::a'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
    ['::2:3:4:5:6:7:8', '0:2:3:4:5:6:7:8'],
    ['1:0:0:2:0:0:0:3', '1:0:0:2::3'],
    ['1:0:0:2:0:0:3:4', '1::2:0:0:3:4'],
  ] as const) {
    t.equal(addressFamily(6).canonical(text), want, text)
  }
})

t.test('usable or not: what stands for an IPv4 address is not', async () => {
  const odd = ['::/16', '64:ff9b::/32'].map((text) => parsePrefix(text))
  fc.assert(
    fc.property(address, (one) => {
      const usable = classifyAddress(one) === 'usable' && !odd.some((prefix) => containsAddress(prefix, one))
      return isUsableIpv6(groupsOf(one)) === usable
    }),
    { numRuns: 5000 },
  )
})

t.test('inside a prefix or not', async () => {
  fc.assert(
    fc.property(address, fc.integer({ min: 0, max: 128 }), address, fc.boolean(), (network, length, any, inside) => {
      const prefix = prefixOf(network, length)
      const host = any.value % (1n << BigInt(128 - length))
      const one: Address = inside ? { family: 6, value: prefix.value + host } : any
      return ipv6Network(prefix)(groupsOf(one)) === containsAddress(prefix, one)
    }),
    { numRuns: 5000 },
  )
})

t.test('any other text is no address', async () => {
  const texts = fc.oneof(
    fc.string(),
    fc.stringMatching(/^[0-9a-f:]{0,24}$/),
    fc.constantFrom(
      '',
      ':',
      ':::',
      '1::2::3',
      '1:2:3:4:5:6:7:8::',
      '1:2:3:4:5:6:7',
      '12345::',
      '1.2.3.4',
      'fe80::1%eth0',
    ),
    fc.constantFrom('::ffff:10.0.0.1', ' ::1', '::1 ', ':1:2:3:4:5:6:7', '1:2:3:4:5:6:7:', '1:2:3:4:5:6:7:8:9', '::g'),
  )
  fc.assert(
    fc.property(texts, (text) => {
      const groups = ipv6Groups(text)
      try {
        const { family } = parseAddress(text)
        // An address with a dotted quad at the end is one that no pod has.
        const isRead = family === 6 && !text.includes('.')
        return isRead ? groups !== undefined && formatGroups(groups) === formatAddress(parseAddress(text)) : !groups
      } catch {
        return groups === undefined
      }
    }),
    { numRuns: 5000 },
  )
})
