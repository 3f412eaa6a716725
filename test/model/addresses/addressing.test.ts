import fc from 'fast-check'
import t from 'tap'
import {
  laneAddress,
  plannedFamilies,
  podFamilies,
  prefixPairs,
  routedPrefixes,
  toGlobalAddress,
  toGlobalText,
} from '../../../model/addresses/addressing.ts'
import { containsAddress, formatAddress, formatPrefix, parsePrefix } from '../../../model/values/ip.ts'
import { clusterObject } from '../../support/objects/cluster-objects.ts'

const OVERLAPPING = { podCIDRs: ['10.42.0.0/16', '10.50.0.0/24'], globalCIDRs: ['244.1.0.0/16', '244.2.7.0/24'] }
const FLAT = { podCIDRs: ['10.42.0.0/16'], globalCIDRs: [] }

t.test('global addresses', async (t) => {
  const pairs = prefixPairs(OVERLAPPING)
  t.equal(toGlobalText(pairs, '10.42.3.9'), '244.1.3.9')
  t.equal(toGlobalText(pairs, '10.50.0.9'), '244.2.7.9')
  t.equal(toGlobalText(pairs, '192.0.2.1'), '192.0.2.1', 'outside: as it is')
  t.equal(toGlobalText(prefixPairs(FLAT), '10.42.3.9'), '10.42.3.9')
  t.throws(() => toGlobalText(pairs, 'x'), { name: 'InvalidAddressError' })
  t.same(routedPrefixes(OVERLAPPING).map(formatPrefix), ['244.1.0.0/16', '244.2.7.0/24'])
  t.same(routedPrefixes(FLAT).map(formatPrefix), ['10.42.0.0/16'])
})

t.test('a global CIDR without a partner or of another size is refused', async (t) => {
  t.throws(() => prefixPairs({ podCIDRs: [], globalCIDRs: ['244.1.0.0/16'] }), {
    message: 'globalCIDRs "244.1.0.0/16": expected one for each of podCIDRs, or none',
  })
  t.throws(() => prefixPairs({ podCIDRs: ['10.42.0.0/16'], globalCIDRs: ['244.1.0.0/24'] }), {
    message: 'globalCIDRs[0] "244.1.0.0/24": expected the size and family of podCIDRs[0], 10.42.0.0/16',
  })
  t.throws(() => prefixPairs({ podCIDRs: ['10.42.0.0/16'], globalCIDRs: ['fd00::/16'] }), {
    name: 'InvalidAddressError',
  })
  t.throws(() => prefixPairs({ podCIDRs: ['10.42.0.0/16', '10.43.0.0/16'], globalCIDRs: ['244.1.0.0/16'] }), {
    message: 'globalCIDRs "244.1.0.0/16": expected one for each of podCIDRs, or none',
  })
})

t.test('families: what a cluster says, and what its nodes plan for', async (t) => {
  const rows: [podCIDRs: string[], said: string[], planned: number[]][] = [
    [['10.42.0.0/16'], ['IPv4'], [4]],
    [
      ['fd00::/56', '10.42.0.0/16'],
      ['IPv4', 'IPv6'],
      [4, 6],
    ],
    [['fd00::/56'], ['IPv6'], [4, 6]],
  ]
  for (const [podCIDRs, said, planned] of rows) {
    const made = clusterObject({ id: 'milano', podCIDRs })
    t.same([podFamilies(made.spec), plannedFamilies(made)], [said, planned], podCIDRs.join(' '))
  }
  t.same(plannedFamilies(undefined), [4])
  t.same(podFamilies({ podCIDRs: ['fd00::1/56'] }), ['IPv6'], 'not looked at closely')
  t.throws(() => plannedFamilies(clusterObject({ id: 'milano', podCIDRs: ['fd00::1/56'] })), {
    message: 'podCIDR "fd00::1/56": expected no host bits set, as in fd00::/56',
  })
})

t.test('one to one', async (t) => {
  const pairs = prefixPairs(OVERLAPPING)
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 65535 }), fc.integer({ min: 0, max: 65535 }), (a, b) => {
      const base = parsePrefix('10.42.0.0/16').value
      const [x, y] = [a, b].map((host) => toGlobalAddress(pairs, { family: 4, value: base + BigInt(host) }))
      return containsAddress(parsePrefix('244.1.0.0/16'), x!) && (x!.value === y!.value) === (a === b)
    }),
  )
  t.pass()
})

t.test('lane addresses', async (t) => {
  t.equal(formatAddress(laneAddress(0, 0)), '246.0.0.0')
  t.equal(formatAddress(laneAddress(258, 3)), '246.1.2.3')
  t.equal(formatAddress(laneAddress(65535, 255)), '246.255.255.255')
  t.throws(() => laneAddress(65536, 0), new RangeError('cluster index 65536: expected 0 to 65535'))
  t.throws(() => laneAddress(-1, 0), RangeError)
  t.throws(() => laneAddress(1.5, 0), RangeError)
  t.throws(() => laneAddress(0, 256), new RangeError('lane 256: expected 0 to 255'))
})
