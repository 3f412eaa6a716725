/** The ranges that a member may state, and those that no member's range may contain. */
import fc from 'fast-check'
import t from 'tap'
import {
  type Prefix,
  addressBits,
  containsPrefix,
  formatPrefix,
  overlaps,
  parsePrefix,
  prefixOf,
} from '../../../model/values/ip.ts'
import {
  MAX_NEEDED,
  UNGRANTED_SPACE,
  fewRanges,
  machineRequiredRanges,
  mayState,
  neededIn,
  neededRanges,
  neededText,
} from '../../../model/addresses/required-ranges.ts'

const rows: [string, string[], boolean][] = [
  ['10.42.0.0/16', [], true],
  ['10.0.0.0/8', [], true],
  ['10.0.0.0/7', [], false],
  ['172.16.0.0/12', [], true],
  ['172.32.0.0/16', [], false],
  ['192.168.0.0/16', [], true],
  ['192.0.0.0/8', [], false],
  ['100.64.0.0/10', [], true],
  ['100.128.0.0/16', [], false],
  ['198.18.0.0/15', [], true],
  ['198.20.0.0/16', [], false],
  ['203.0.113.0/28', [], false],
  ['203.0.113.0/28', ['203.0.113.0/24'], true],
  ['203.0.113.0/24', ['203.0.113.0/28'], false],
  ['203.0.113.0/24', ['203.0.113.0/25', '203.0.113.128/25'], true],
  ['8.8.8.0/24', ['203.0.113.0/24'], false],
  ['11.0.0.0/16', ['11.0.0.0/8'], true],
  ['10.0.0.0/7', ['11.0.0.0/8'], true],
  ['fd00:42::/48', [], true],
  ['fc00::/7', [], true],
  ['2001:db8::/48', [], false],
  ['2001:db8::/48', ['2001:db8::/32'], true],
  ['2001:db8::/32', ['203.0.113.0/24'], false],
]
for (const [text, granted, may] of rows) {
  t.equal(
    mayState(
      parsePrefix(text),
      granted.map((one) => parsePrefix(one)),
    ),
    may,
    `${text}, granted: ${granted.join() || 'nothing'}`,
  )
}

t.test('needed ranges are read from addresses, interfaces and CIDRs', (t) => {
  const texts = ['192.0.2.7', '192.0.2.7/24', '10.1.0.0/16', '2001:db8::5', 'fd00::5/64', 'fe80::1/64', '169.254.1.1']
  const none = ['127.0.0.1', '::1', 'broker.example', '', '0.0.0.0/0', '10.0.0.0/4', '10.0.0.1/33', '10.0.0.1/x']
  t.same(
    neededRanges([...texts, ...none], 'it').map(({ prefix }) => formatPrefix(prefix)),
    ['192.0.2.7/32', '192.0.2.0/24', '10.1.0.0/16', '2001:db8::5/128', 'fd00::/64'],
  )
  t.end()
})

t.test('what a machine needs', (t) => {
  const needs = machineRequiredRanges({
    nodes: ['192.168.1.10', '192.168.7.4', 'fd00:1::a'],
    interfaces: ['127.0.0.1/8', '192.168.1.10/24', '198.51.100.2/30', '172.17.0.1/16', '10.42.0.1/24', 'fd00:1::a/64'],
    nextHops: ['198.51.100.1'],
    nameServers: ['9.9.9.9', '127.0.0.53'],
  })
  t.same(
    needs.map((one) => neededText(one)),
    [
      'holds 198.51.100.1, a default gateway of this node',
      'holds 9.9.9.9, a name server of this node',
      'overlaps 192.168.1.0/24, a network of this node',
      'overlaps 198.51.100.0/30, a network of this node',
      'overlaps fd00:1::/64, a network of this node',
    ],
    'no network of a bridge for containers',
  )
  t.end()
})

const prefix = fc
  .tuple(fc.constantFrom(4 as const, 6 as const), fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }), fc.nat(128))
  .map(([family, value, length]): Prefix => {
    const bits = addressBits(family)
    return prefixOf({ family, value: value & ((1n << BigInt(bits)) - 1n) }, length % (bits + 1))
  })

t.test('properties', (t) => {
  fc.assert(
    fc.property(prefix, fc.array(prefix, { maxLength: 6 }), (one, granted) => {
      const may = mayState(one, granted)
      // A grant never forbids a range, and a granted range may be stated with all that is inside it.
      if (mayState(one, []) && !may) return false
      if (!granted.every((grant) => mayState(grant, granted))) return false
      // A range that overlaps neither private space nor a grant is refused.
      return !may || [...UNGRANTED_SPACE, ...granted].some((outer) => overlaps(outer, one))
    }),
  )
  fc.assert(
    fc.property(prefix, fc.array(prefix, { maxLength: 8 }), (one, needs) => {
      const found = neededIn(
        one,
        needs.map((need) => ({ prefix: need, what: 'x' })),
      )
      return (found !== undefined) === needs.some((need) => containsPrefix(need, one) || containsPrefix(one, need))
    }),
  )
  const needed = fc
    .array(prefix, { maxLength: 200 })
    .map((all) => all.filter(({ family, length }) => length >= (family === 4 ? 8 : 16)))
  fc.assert(
    fc.property(needed, (all) => {
      const few = fewRanges(all).map((text) => parsePrefix(text))
      return (
        few.length <= MAX_NEEDED &&
        all.every((one) => few.some((outer) => containsPrefix(outer, one)) || few.length === MAX_NEEDED)
      )
    }),
    { numRuns: 50 },
  )
  t.end()
})
