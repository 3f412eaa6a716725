import fc from 'fast-check'
import t from 'tap'
import {
  type Address,
  type Prefix,
  addressBits,
  containsAddress,
  formatPrefix,
  parsePrefix,
  prefixOf,
} from '../../../model/values/ip.ts'
import {
  aggregate,
  comparePrefixes,
  isInside,
  meantPrefixes,
  withoutContained,
} from '../../../model/addresses/prefix-set.ts'

const read = (text: string): Prefix[] => text.split(' ').map((one) => parsePrefix(one))
const texts = (prefixes: readonly Prefix[]): string => prefixes.map(formatPrefix).join(' ')

const address = fc
  .tuple(fc.constantFrom(parsePrefix('10.42.0.0/24'), parsePrefix('fd00:10:42::/120')), fc.nat(255))
  .map(([network, low]): Address => ({ family: network.family, value: network.value + BigInt(low) }))
const prefix = fc
  .tuple(address, fc.integer({ min: 0, max: 8 }))
  .map(([one, bits]) => prefixOf(one, addressBits(one.family) - bits))

t.test('order: family, first address, wider ones first', async (t) => {
  const sorted = read('fd00::/64 10.42.0.0/24 10.9.0.0/16 10.42.0.0/16 ::/0').sort(comparePrefixes)
  t.equal(texts(sorted), '10.9.0.0/16 10.42.0.0/16 10.42.0.0/24 ::/0 fd00::/64')
})

t.test('inside is inside one of them, as a whole', async (t) => {
  const halves = read('10.42.0.0/25 10.42.0.128/25')
  t.equal(isInside(parsePrefix('10.42.0.128/26'), halves), true)
  t.equal(isInside(parsePrefix('10.42.0.0/25'), halves), true)
  t.equal(isInside(parsePrefix('10.42.0.0/24'), halves), false)
  t.equal(isInside(parsePrefix('::/128'), read('0.0.0.0/0')), false)
})

t.test('of prefixes that overlap the widest stays, in its place', async (t) => {
  t.equal(
    texts(withoutContained(read('fd00::/64 10.42.1.0/24 10.9.0.0/16 10.42.0.0/16 10.9.0.0/16 fd00::1/128'))),
    'fd00::/64 10.9.0.0/16 10.42.0.0/16',
  )
  fc.assert(
    fc.property(fc.array(prefix), address, (list, value) => {
      const holding = (all: readonly Prefix[]): number => all.filter((one) => containsAddress(one, value)).length
      return holding(withoutContained(list)) === Math.min(holding(list), 1)
    }),
  )
})

t.test('the longest prefix says whether an address is meant', async (t) => {
  const [outer, inner, innermost] = read('10.42.0.0/24 10.42.0.0/26 10.42.0.9/32') as [Prefix, Prefix, Prefix]
  const rows = [
    { prefix: innermost, meant: true },
    { prefix: inner, meant: false },
    { prefix: outer, meant: true },
  ]
  t.equal(texts(meantPrefixes(rows)), '10.42.0.9/32 10.42.0.64/26 10.42.0.128/25')
})

t.test('aggregation keeps every address and adds none', async (t) => {
  t.equal(texts(aggregate([])), '')
  t.equal(texts(aggregate(read('10.42.0.0/25 10.42.0.128/25 10.42.1.0/24 10.42.3.0/24'))), '10.42.0.0/23 10.42.3.0/24')
  t.equal(texts(aggregate(read('0.0.0.0/1 128.0.0.0/1'))), '0.0.0.0/0')
  t.equal(texts(aggregate(read('8000::/1 0.0.0.0/0 ::/1'))), '0.0.0.0/0 ::/0')
  fc.assert(
    fc.property(fc.array(prefix), address, (list, value) => {
      const held = (all: readonly Prefix[]): boolean => all.some((one) => containsAddress(one, value))
      const short = aggregate(list)
      return held(short) === held(list) && short.length <= Math.max(list.length, 0)
    }),
  )
})
