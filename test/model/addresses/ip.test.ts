import { isIP } from 'node:net'
import fc from 'fast-check'
import t from 'tap'
import {
  type Address,
  type Prefix,
  addressBits,
  classifyAddress,
  compareAddresses,
  containsAddress,
  containsPrefix,
  familyOf,
  formatAddress,
  formatPrefix,
  ipv4Among,
  ipv6Among,
  overlaps,
  parseAddress,
  parsePrefix,
  prefixOf,
  prefixSize,
  translate,
} from '../../../model/values/ip.ts'
import { messageOf } from '../../support/failure.ts'

t.test('prefixes print as they were read', async (t) => {
  t.equal(formatPrefix(parsePrefix('10.42.0.0/16')), '10.42.0.0/16')
  t.equal(formatPrefix(parsePrefix('fd00:0:0:0::/64')), 'fd00::/64')
  t.equal(formatPrefix(parsePrefix('0.0.0.0/0')), '0.0.0.0/0')
})

t.test('texts by family', async (t) => {
  const texts = ['fd00::/64', '10.0.0.1/8', '::1']
  t.same(texts.map(familyOf), [6, 4, 6])
  t.same([ipv6Among(texts), ipv4Among(texts)], [['fd00::/64', '::1'], ['10.0.0.1/8']])
})

t.test('every IPv4 address prints as it was read', async (t) => {
  const octet = fc.oneof(fc.constantFrom(0, 1, 127, 128, 199, 200, 249, 250, 255), fc.integer({ min: 0, max: 255 }))
  fc.assert(
    fc.property(octet, octet, octet, octet, (a, b, c, d) => {
      const text = `${a}.${b}.${c}.${d}`
      const { family, value } = parseAddress(text)
      t.equal(formatAddress({ family, value }), text)
      return value === BigInt(((a * 256 + b) * 256 + c) * 256 + d)
    }),
  )
})

t.test('what is no octet is no address', async (t) => {
  const part = fc.oneof(
    fc.nat(400).map(String),
    fc.nat(300).map((n) => `0${n}`),
    fc.constantFrom('', '-1', '1e1', '٣'),
  )
  fc.assert(
    fc.property(fc.array(part, { minLength: 4, maxLength: 4 }), (parts) => {
      const text = parts.join('.')
      const isGood = isIP(text) === 4
      try {
        return formatAddress(parseAddress(text)) === text && isGood
      } catch {
        return !isGood
      }
    }),
  )
  t.pass()
})

t.test('what is not an address', async (t) => {
  const bad = [
    '',
    '1',
    '1.2.3',
    '1.2.3.4.5',
    '01.2.3.4',
    '1.2.3.256',
    '0x7f.1',
    ' 1.2.3.4',
    '1.2.3.4 ',
    '1.2.3.4\n',
    '::1%eth0',
    ':::',
    'fd00::1::2',
    'web',
    '10.0.0.0/8',
    '-1.2.3.4',
    '1.2.3.4e0',
    '[::1]',
    '::ffff:1.2.3.400',
  ]
  for (const text of bad) {
    t.throws(
      () => parseAddress(text),
      { name: 'InvalidAddressError', field: 'address', value: text },
      JSON.stringify(text),
    )
  }
  t.equal(
    await messageOf(() => parseAddress('nope', 'podCIDRs[0]')),
    'podCIDRs[0] "nope": expected an IPv4 or IPv6 address such as 10.42.0.7',
  )
})

t.test('what is not a prefix', async (t) => {
  const rows: [text: string, message: string][] = [
    ['10.42.0.0', 'prefix "10.42.0.0": expected a CIDR such as 10.42.0.0/16'],
    ['10.42.0.0/', 'prefix "10.42.0.0/": expected a CIDR such as 10.42.0.0/16'],
    ['10.42.0.0/-1', 'prefix "10.42.0.0/-1": expected a CIDR such as 10.42.0.0/16'],
    ['10.42.0.0/33', 'prefix "10.42.0.0/33": expected a prefix length of at most 32'],
    ['fd00::/129', 'prefix "fd00::/129": expected a prefix length of at most 128'],
    ['10.42.0.7/16', 'prefix "10.42.0.7/16": expected no host bits set, as in 10.42.0.0/16'],
    ['10.42/16', 'prefix "10.42": expected an IPv4 or IPv6 address such as 10.42.0.7'],
    ['10.42.0.0/16/16', 'prefix "10.42.0.0/16/16": expected a CIDR such as 10.42.0.0/16'],
    ['10.42.0.0/016', 'prefix "10.42.0.0/016": expected a CIDR such as 10.42.0.0/16'],
  ]
  for (const [text, message] of rows) t.equal(await messageOf(() => parsePrefix(text)), message, text)
})

t.test('classes', async (t) => {
  const rows: [text: string, want: string][] = [
    ['0.0.0.0', 'unspecified'],
    ['0.1.2.3', 'unspecified'],
    ['127.0.0.1', 'loopback'],
    ['127.255.0.9', 'loopback'],
    ['169.254.169.254', 'linkLocal'],
    ['224.0.0.1', 'multicast'],
    ['239.1.1.1', 'multicast'],
    ['255.255.255.255', 'broadcast'],
    ['10.42.0.7', 'usable'],
    ['244.0.0.1', 'usable'],
    ['8.8.8.8', 'usable'],
    ['::', 'unspecified'],
    ['::1', 'loopback'],
    ['fe80::1', 'linkLocal'],
    ['ff02::1', 'multicast'],
    ['fd00::1', 'usable'],
    ['::ffff:127.0.0.1', 'loopback'],
    ['::ffff:10.0.0.1', 'usable'],
    ['::ffff:0:0', 'unspecified'],
    // The deprecated IPv4-compatible and NAT64 forms of addresses that must not be reached.
    ['::127.0.0.1', 'loopback'],
    ['64:ff9b::127.0.0.1', 'loopback'],
    ['64:ff9b::10.0.0.1', 'usable'],
  ]
  for (const [text, want] of rows) t.equal(classifyAddress(parseAddress(text)), want, text)
})

const arbAddress: fc.Arbitrary<Address> = fc.oneof(
  fc.bigInt({ min: 0n, max: 2n ** 32n - 1n }).map((value): Address => ({ family: 4, value })),
  fc.bigInt({ min: 0n, max: 2n ** 128n - 1n }).map((value): Address => ({ family: 6, value })),
  // Runs of zeros, for which RFC 5952 has rules.
  fc
    .array(fc.constantFrom(0n, 0n, 1n, 0xffffn), { minLength: 8, maxLength: 8 })
    .map((words): Address => ({ family: 6, value: words.reduce<bigint>((sum, word) => (sum << 16n) | word, 0n) })),
)
const arbPrefix: fc.Arbitrary<Prefix> = arbAddress.chain((address) =>
  fc.integer({ min: 0, max: addressBits(address.family) }).map((length) => prefixOf(address, length)),
)

t.test('properties', async (t) => {
  const check = <T>(name: string, property: fc.IProperty<T>): void => {
    fc.assert(property, { numRuns: 500 })
    t.pass(name)
  }
  check(
    'an address survives text',
    fc.property(arbAddress, (address) => {
      const text = formatAddress(address)
      const back = parseAddress(text)
      return back.family === address.family && back.value === address.value && isIP(text) === address.family
    }),
  )
  check(
    'a prefix survives text',
    fc.property(arbPrefix, (prefix) => {
      const back = parsePrefix(formatPrefix(prefix))
      return back.value === prefix.value && back.length === prefix.length && back.family === prefix.family
    }),
  )
  check(
    'any text is parsed or refused with our error',
    fc.property(fc.string({ unit: fc.constantFrom(...Array.from('0123456789abf.:/%x- ')) }), (text) => {
      for (const parse of [parseAddress, parsePrefix]) {
        try {
          const value = parse(text)
          if (value.value < 0n) return false
        } catch (error) {
          if (!(error instanceof Error) || error.name !== 'InvalidAddressError') return false
        }
      }
      return true
    }),
  )
  check(
    'an address is in the prefix made of it',
    fc.property(arbPrefix, arbAddress, (prefix, address) => {
      const own = prefixOf(address, Math.min(prefix.length, addressBits(address.family)))
      return containsAddress(own, address) && containsPrefix(prefixOf(address, 0), own)
    }),
  )
  check(
    'overlap is symmetric and means that a first address is inside the other',
    fc.property(
      arbPrefix,
      arbPrefix,
      (a, b) =>
        overlaps(a, b) === overlaps(b, a) && overlaps(a, b) === (containsAddress(a, b) || containsAddress(b, a)),
    ),
  )
  check(
    'translation keeps the host, goes both ways and stays inside',
    fc.property(
      arbAddress.filter(({ family }) => family === 4),
      arbAddress.filter(({ family }) => family === 4),
      fc.integer({ min: 0, max: 32 }),
      (host, other, length) => {
        const from = prefixOf(host, length)
        const to = prefixOf(other, length)
        const there = translate(host, from, to)
        const hostBits = prefixSize(from) - 1n
        return (
          containsAddress(to, there) &&
          (there.value & hostBits) === (host.value & hostBits) &&
          translate(there, to, from).value === host.value
        )
      },
    ),
  )
  check(
    'the order is total',
    fc.property(arbAddress, arbAddress, (a, b) => {
      const order = compareAddresses(a, b)
      return order === -compareAddresses(b, a) || (order === 0 && a.value === b.value)
    }),
  )
})
