import fc from 'fast-check'
import t from 'tap'
import { neededRanges } from '../../../model/addresses/required-ranges.ts'
import { overlaps, parsePrefix } from '../../../model/values/ip.ts'
import { type CidrClaims, ipv6Clashes } from '../../../model/addresses/ipv6-claims.ts'

function claims(index: number, podCIDRs: string[], serviceCIDRs: string[] = []): CidrClaims {
  return { id: `c${index}`, index, podCIDRs, serviceCIDRs }
}

function show(clusters: CidrClaims[]): string[] {
  return [...ipv6Clashes(clusters)].map(([id, { own, other, cluster }]) => `${id} ${own} for ${other} of ${cluster}`)
}

t.test('whose IPv6 is left out', async (t) => {
  const rows: [string, CidrClaims[], string[]][] = [
    ['nobody', [], []],
    ['IPv4 does not count', [claims(1, ['10.42.0.0/16']), claims(2, ['10.42.0.0/16'])], []],
    ['apart', [claims(1, ['fd00:1::/48']), claims(2, ['fd00:2::/48'])], []],
    [
      'the same, whatever the order',
      [claims(2, ['fd00:1::/48']), claims(1, ['fd00:1::/48'])],
      ['c2 fd00:1::/48 for fd00:1::/48 of c1'],
    ],
    [
      'a part of it, from inside and from outside',
      [claims(1, ['fd00:1::/48']), claims(2, ['fd00:1:0:5::/64']), claims(3, ['fd00::/16'])],
      ['c3 fd00::/16 for fd00:1::/48 of c1', 'c2 fd00:1:0:5::/64 for fd00:1::/48 of c1'],
    ],
    [
      "pods where another's services are",
      [claims(1, [], ['fd00:9::/108']), claims(2, ['fd00:9::/64'])],
      ['c2 fd00:9::/64 for fd00:9::/108 of c1'],
    ],
    [
      "services where another's pods are",
      [claims(1, ['fd00:9::/64']), claims(2, ['fd00:7::/64'], ['fd00:9::/108'])],
      ['c2 fd00:9::/108 for fd00:9::/64 of c1'],
    ],
    [
      'services alike',
      [claims(1, ['fd00:1::/64'], ['fd00:9::/108']), claims(2, ['fd00:2::/64'], ['fd00:9::/108'])],
      [],
    ],
    [
      'the one that it gives way to is left out itself',
      [claims(1, ['fd00:1::/48']), claims(2, ['fd00::/32', 'fd00:1::/32']), claims(3, ['fd00::/48'])],
      ['c3 fd00::/48 for fd00::/32 of c2', 'c2 fd00:1::/32 for fd00:1::/48 of c1'],
    ],
    ['what is no CIDR', [claims(1, ['fd00::/200', ':']), claims(2, ['fd00::/64'])], []],
  ]
  for (const [name, clusters, want] of rows) t.same(show(clusters), want, name)
})

const cidr = fc
  .tuple(fc.integer({ min: 0, max: 7 }), fc.constantFrom(29, 30, 31, 32))
  .map(([n, length]) => `fd00:${((n >> (32 - length)) << (32 - length)).toString(16)}::/${length}`)
const list = fc.array(cidr, { maxLength: 2 })
const clusters = fc
  .array(fc.record({ podCIDRs: list, serviceCIDRs: list }), { maxLength: 6 })
  .map((all) => all.map((one, i): CidrClaims => ({ ...one, id: `c${i}`, index: i + 1 })))

function meet(a: readonly string[], b: readonly string[]): boolean {
  return a.some((one) => b.some((other) => overlaps(parsePrefix(one), parsePrefix(other))))
}

function clash(a: CidrClaims, b: CidrClaims): boolean {
  return meet(a.podCIDRs, [...b.podCIDRs, ...b.serviceCIDRs]) || meet(a.serviceCIDRs, b.podCIDRs)
}

t.test('for any clusters: exactly who clashes with a lower index, and for the lowest of them', async () => {
  fc.assert(
    fc.property(clusters, (all) => {
      const found = ipv6Clashes(all)
      return all.every((one) => {
        const lower = all.find((other) => other.index < one.index && clash(one, other))
        return found.get(one.id)?.cluster === lower?.id
      })
    }),
    { numRuns: 500 },
  )
})

t.test('for any clusters: the order they come in does not matter, and what is left is apart', async (t) => {
  fc.assert(
    fc.property(clusters, fc.func(fc.nat()), (all, chance) => {
      const found = ipv6Clashes(all)
      const shuffled = [...all].sort((a, b) => chance(a.id) - chance(b.id))
      t.strictSame(ipv6Clashes(shuffled), found)
      const left = all.filter(({ id }) => !found.has(id))
      return left.every((one) => left.every((other) => one === other || !clash(one, other)))
    }),
    { numRuns: 300 },
  )
})

t.test('for any clusters: who leaves takes nothing from anybody', async () => {
  fc.assert(
    fc.property(clusters, fc.nat(), (all, n) => {
      const before = ipv6Clashes(all)
      const rest = all.filter((_one, i) => i !== n % Math.max(1, all.length))
      return [...ipv6Clashes(rest).keys()].every((id) => before.has(id))
    }),
    { numRuns: 300 },
  )
})

t.test('what was stated first stays, whatever the numbers are, and machines come before pods that come later', (t) => {
  const cidr = fc.integer({ min: 0, max: 3 }).map((n) => (n === 0 ? 'fd00::/48' : `fd00:${n}::/48`))
  const claim = fc.record({ cidr, order: fc.integer({ min: 1, max: 9 }), isPods: fc.boolean() })
  const clusters = fc.array(claim, { maxLength: 6 }).map((all) =>
    all.map(({ cidr, order, isPods }, i) => ({
      ...{ id: `c${i}`, index: i + 1, serviceCIDRs: [], claimed: { [cidr]: order } },
      ...(isPods ? { podCIDRs: [cidr] } : { podCIDRs: [], needed: neededRanges([cidr], 'machines') }),
      ...{ cidr, order, isPods },
    })),
  )
  fc.assert(
    fc.property(clusters, fc.array(cidr, { maxLength: 1 }), (all, forAll) => {
      const found = ipv6Clashes(all, neededRanges(forAll, 'the broker'))
      return all.every((one) => {
        const before = all.filter(
          (other) => other.order < one.order || (other.order === one.order && other.index < one.index),
        )
        const clashes = before.some((other) => other.cidr === one.cidr && (other.isPods || one.isPods))
        return found.has(one.id) === (clashes || (one.isPods && forAll.includes(one.cidr)))
      })
    }),
  )
  t.end()
})
