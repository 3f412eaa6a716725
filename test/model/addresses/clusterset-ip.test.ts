import fc from 'fast-check'
import t from 'tap'
import { clustersetIpv4, clustersetIpv6, clustersetIpv6Range } from '../../../model/addresses/addressing.ts'
import {
  containsAddress,
  formatAddress,
  formatPrefix,
  overlaps,
  parseAddress,
  parsePrefix,
} from '../../../model/values/ip.ts'
import { CLUSTERSET_IPV6_PREFIX } from '../../../model/kernel-ids.ts'

t.test('the twin of a clusterset IP', async (t) => {
  const rows: [string, string][] = [
    ['245.0.0.1', 'fd53:ea1a:4e00::f500:1'],
    ['245.0.255.254', 'fd53:ea1a:4e00::f500:fffe'],
    ['10.96.0.1', 'fd53:ea1a:4e00::a60:1'],
  ]
  for (const [v4, v6] of rows) t.equal(formatAddress(clustersetIpv6(parseAddress(v4))), v6)
  for (const text of ['245.0.0.1', 'fd53:ea1a:4e00::1:0:0', 'fd53:ea1a:4dff:ffff:ffff:ffff:ffff:ffff'])
    t.equal(clustersetIpv4(parseAddress(text)), undefined, text)
})

t.test('the twins of a range', async (t) => {
  const rows: [string, string][] = [
    ['245.0.0.0/16', 'fd53:ea1a:4e00::f500:0/112'],
    ['245.0.0.7/32', 'fd53:ea1a:4e00::f500:7/128'],
    ['0.0.0.0/0', CLUSTERSET_IPV6_PREFIX],
  ]
  for (const [v4, v6] of rows) t.equal(formatPrefix(clustersetIpv6Range(parsePrefix(v4))), v6)
})

t.test('only IPv4 has a twin', async (t) => {
  t.throws(() => clustersetIpv6(parseAddress('fd00::1')), {
    name: 'InvalidAddressError',
    message: 'clustersetIP "fd00::1": expected an IPv4 address',
  })
  t.throws(() => clustersetIpv6Range(parsePrefix('fd00::/64')), {
    name: 'InvalidAddressError',
    message: 'clustersetIP "fd00::": expected an IPv4 address',
  })
})

t.test(
  'for any two addresses: twins differ as they do, lead back, and lie in the range exactly when they do',
  async () => {
    const v4 = fc.integer({ min: 0, max: 0xffffffff }).map((n) => ({ family: 4 as const, value: BigInt(n) }))
    fc.assert(
      fc.property(v4, v4, fc.integer({ min: 0, max: 32 }), (a, b, length) => {
        const shift = BigInt(32 - length)
        const range = { family: 4 as const, value: (b.value >> shift) << shift, length }
        const same = clustersetIpv6(a).value === clustersetIpv6(b).value
        const inside = containsAddress(clustersetIpv6Range(range), clustersetIpv6(a))
        return (
          same === (a.value === b.value) &&
          clustersetIpv4(clustersetIpv6(a))?.value === a.value &&
          inside === containsAddress(range, a) &&
          overlaps(clustersetIpv6Range(range), parsePrefix(CLUSTERSET_IPV6_PREFIX))
        )
      }),
    )
  },
)
