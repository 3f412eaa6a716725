/** What counts as one source of connections. */
import fc from 'fast-check'
import { isIPv6 } from 'node:net'
import t from 'tap'
import { sourceKey } from '../../runtime/source-key.ts'

t.test('the key of an address', async (t) => {
  const rows: readonly (readonly [address: string | undefined, key: string])[] = [
    [undefined, ''],
    ['', ''],
    ['192.0.2.1', '192.0.2.1'],
    ['::ffff:192.0.2.1', '192.0.2.1'],
    ['::FFFF:192.0.2.1', '192.0.2.1'],
    ['2001:db8:1:2::5', '2001:db8:1:2::/64'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:0DB8:1:2::5', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['2001:db8::1:2:3:4:5', '2001:db8:0:1::/64'],
    ['64:ff9b::192.0.2.1', '64:ff9b:0:0::/64'],
    ['1:2:3:4:5:6:192.0.2.1', '1:2:3:4::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['::', '0:0:0:0::/64'],
    ['unknown', 'unknown'],
  ]
  for (const [address, key] of rows) t.equal(sourceKey(address), key, String(address))
})

t.test('all addresses of one /64 are one source, and another /64 is another', async (t) => {
  const groups = (length: number) => fc.array(fc.nat(0xffff), { minLength: length, maxLength: length })
  const text = (all: readonly number[]): string => all.map((one) => one.toString(16)).join(':')
  const short = (all: readonly number[]): string => new URL(`http://[${text(all)}]/`).hostname.slice(1, -1)
  fc.assert(
    fc.property(groups(4), groups(4), groups(4), fc.nat(3), (network, a, b, at) => {
      const other = network.map((one, i) => (i === at ? one ^ 1 : one))
      const [x, y, z] = [
        [...network, ...a],
        [...network, ...b],
        [...other, ...a],
      ].map(short) as [string, string, string]
      // Addresses of IPv4 written as IPv6 are no such networks.
      fc.pre(isIPv6(x) && network.some((one) => one !== 0) && other.some((one) => one !== 0))
      return sourceKey(x) === sourceKey(y) && sourceKey(x) !== sourceKey(z) && sourceKey(x) === `${text(network)}::/64`
    }),
  )
  t.pass('each')
})
