import fc from 'fast-check'
import t from 'tap'
import { containsAddress, parseAddress, parsePrefix } from '../../../model/values/ip.ts'
import { Ipv4Ranges } from '../../../routeagent/count-connections.ts'

t.test('which addresses are inside', (t) => {
  const ranges = new Ipv4Ranges(
    ['10.42.1.0/24', '10.42.2.7/32', '0.0.0.0/32', '255.255.255.254/31', '10.42.1.128/25', 'fd00::/8'].map((text) =>
      parsePrefix(text),
    ),
  )
  const rows: [address: string, isIn: boolean][] = [
    ['0.0.0.0', true],
    ['0.0.0.1', false],
    ['10.42.0.255', false],
    ['10.42.1.0', true],
    ['10.42.1.255', true],
    ['10.42.2.0', false],
    ['10.42.2.7', true],
    ['10.42.2.8', false],
    ['255.255.255.253', false],
    ['255.255.255.255', true],
  ]
  for (const [address, isIn] of rows) t.equal(ranges.has(Number(parseAddress(address).value)), isIn, address)
  t.equal(new Ipv4Ranges([]).has(0), false)
  t.equal(new Ipv4Ranges([parsePrefix('0.0.0.0/0')]).has(2 ** 32 - 1), true)
  t.end()
})

t.test('as looking at one prefix after the other', (t) => {
  const prefix = fc.tuple(fc.nat(2 ** 32 - 1), fc.integer({ min: 0, max: 32 })).map(([value, length]) => ({
    family: 4 as const,
    length,
    value: (BigInt(value) >> BigInt(32 - length)) << BigInt(32 - length),
  }))
  fc.assert(
    fc.property(fc.array(prefix, { maxLength: 8 }), fc.nat(2 ** 32 - 1), (prefixes, at) => {
      const edges = prefixes.flatMap(({ value, length }) => [Number(value), Number(value) + 2 ** (32 - length) - 1])
      const ranges = new Ipv4Ranges(prefixes)
      return [at, ...edges, ...edges.map((edge) => edge - 1), ...edges.map((edge) => edge + 1)]
        .filter((address) => address >= 0 && address < 2 ** 32)
        .every((address) => {
          const one = { family: 4 as const, value: BigInt(address) }
          return ranges.has(address) === prefixes.some((outer) => containsAddress(outer, one))
        })
    }),
  )
  t.end()
})
