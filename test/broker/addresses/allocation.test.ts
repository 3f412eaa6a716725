import fc from 'fast-check'
import t from 'tap'
import {
  type AddressClaims,
  NoRoomError,
  addressOverlaps,
  globalCIDRs,
  nextIndex,
  planAddresses,
} from '../../../broker/addresses/allocation.ts'
import { overlaps, parsePrefix } from '../../../model/values/ip.ts'
import { type NeededRange, neededIn, neededRanges } from '../../../model/addresses/required-ranges.ts'

const RANGE = '244.0.0.0/8'

function claims(id: string, podCIDRs: string[], change: Partial<AddressClaims> = {}): AddressClaims {
  return { id, index: 0, podCIDRs, serviceCIDRs: [], translated: false, blocks: {}, departed: false, ...change }
}

function needs(...texts: string[]): NeededRange[] {
  return neededRanges(texts, 'in use by machines')
}

/** Returns `id pod→global, …` for each cluster whose addresses change. */
function show(clusters: AddressClaims[], range = RANGE): string[] {
  return [...planAddresses(clusters, range)].map(
    ([id, { translated, blocks }]) =>
      `${id} ${translated ? '' : 'flat '}${Object.entries(blocks)
        .map(([own, global]) => `${own}→${global}`)
        .join(', ')}`,
  )
}

t.test('who is translated', async (t) => {
  const a = claims('a', ['10.42.0.0/16'])
  const rows: [string, AddressClaims[], string[]][] = [
    ['alone', [a], []],
    ['apart', [a, claims('b', ['10.44.0.0/16'])], []],
    [
      'the same: both sides',
      [a, claims('b', ['10.42.0.0/16'])],
      ['a 10.42.0.0/16→244.0.0.0/16', 'b 10.42.0.0/16→244.1.0.0/16'],
    ],
    [
      'a part: both sides, each its own size',
      [a, claims('b', ['10.42.8.0/24'])],
      ['a 10.42.0.0/16→244.0.0.0/16', 'b 10.42.8.0/24→244.1.0.0/24'],
    ],
    [
      'one of two CIDRs: the whole cluster',
      [a, claims('b', ['10.50.0.0/16', '10.42.0.0/16'])],
      ['a 10.42.0.0/16→244.0.0.0/16', 'b 10.50.0.0/16→244.1.0.0/16, 10.42.0.0/16→244.2.0.0/16'],
    ],
    [
      "pods where another's services are: only the pods' side",
      [a, claims('b', ['10.44.0.0/16'], { serviceCIDRs: ['10.42.0.0/20'] })],
      ['a 10.42.0.0/16→244.0.0.0/16'],
    ],
    [
      'services that are stated later over pods: nobody',
      [
        claims('a', ['10.42.0.0/16'], { claimed: { '10.42.0.0/16': 1 } }),
        claims('b', ['10.44.0.0/16'], { serviceCIDRs: ['10.42.0.0/20'], claimed: { '10.42.0.0/20': 2 } }),
      ],
      [],
    ],
    [
      'at one moment: the lower number was first',
      [
        claims('a', ['10.42.0.0/16'], { index: 2, claimed: { '10.42.0.0/16': 1 } }),
        claims('b', ['10.44.0.0/16'], { index: 1, serviceCIDRs: ['10.42.0.0/20'], claimed: { '10.42.0.0/20': 1 } }),
      ],
      ['a 10.42.0.0/16→244.0.0.0/16'],
    ],
    [
      'pods that are stated later over services: the pods',
      [
        claims('a', ['10.42.0.0/16'], { claimed: { '10.42.0.0/16': 3 } }),
        claims('b', ['10.44.0.0/16'], { serviceCIDRs: ['10.42.0.0/20'], claimed: { '10.42.0.0/20': 2 } }),
      ],
      ['a 10.42.0.0/16→244.0.0.0/16'],
    ],
    [
      'pods that are stated later over pods: both sides, as ever',
      [
        claims('a', ['10.42.0.0/16'], { claimed: { '10.42.0.0/16': 1 } }),
        claims('b', ['10.42.0.0/20'], { claimed: { '10.42.0.0/20': 2 } }),
      ],
      ['a 10.42.0.0/16→244.0.0.0/16', 'b 10.42.0.0/20→244.1.0.0/20'],
    ],
    [
      'services alike: nobody',
      [
        claims('a', ['10.1.0.0/16'], { serviceCIDRs: ['10.43.0.0/16'] }),
        claims('b', ['10.2.0.0/16'], { serviceCIDRs: ['10.43.0.0/16'] }),
      ],
      [],
    ],
    [
      "pods where another's machines are: only the pods' side, whoever is first by name",
      [claims('a', ['192.168.0.0/16']), claims('b', ['10.44.0.0/16'], { needed: needs('192.168.1.0/24') })],
      ['a 192.168.0.0/16→244.0.0.0/16'],
    ],
    ['pods where its own machines are: nobody', [claims('a', ['10.1.0.0/16'], { needed: needs('10.1.7.0/24') })], []],
    [
      'machines of all in one network: nobody',
      [
        claims('a', ['10.1.0.0/16'], { needed: needs('192.168.1.0/24'), serviceCIDRs: ['192.168.1.0/24'] }),
        claims('b', ['10.2.0.0/16'], { needed: needs('192.168.1.7') }),
      ],
      [],
    ],
    [
      'machines of one that has left: nobody',
      [claims('a', ['192.168.0.0/16']), claims('b', [], { needed: needs('192.168.1.7'), departed: true })],
      [],
    ],
    ['IPv6 alike: nobody', [claims('a', ['10.1.0.0/16', 'fd00::/64']), claims('b', ['10.2.0.0/16', 'fd00::/64'])], []],
    [
      'of a translated cluster, IPv6 gets no block',
      [claims('a', ['fd00::/64', '10.42.0.0/16']), claims('b', ['10.42.0.0/16'])],
      ['a 10.42.0.0/16→244.0.0.0/16', 'b 10.42.0.0/16→244.1.0.0/16'],
    ],
    ['one who has left does not count', [a, claims('b', ['10.42.0.0/16'], { departed: true })], []],
  ]
  for (const [name, clusters, want] of rows) t.same(show(clusters), want, name)
})

t.test('what was given stays, and what is kept for those who left is spared', async (t) => {
  const a = claims('a', ['10.42.0.0/16'], { translated: true, blocks: { '10.42.0.0/16': '244.9.0.0/16' } })
  t.same(show([a]), [], 'no more overlap, still translated')
  t.same(show([a, claims('b', ['10.42.0.0/16'])]), ['b 10.42.0.0/16→244.0.0.0/16'])
  t.same(
    show([{ ...a, podCIDRs: ['10.42.0.0/16', '10.60.0.0/16'] }]),
    ['a 10.42.0.0/16→244.9.0.0/16, 10.60.0.0/16→244.0.0.0/16'],
    'a new CIDR gets one too',
  )
  const left = claims('l', ['10.42.0.0/16'], {
    departed: true,
    translated: true,
    blocks: { '10.42.0.0/16': '244.0.0.0/16' },
  })
  t.same(show([left, a, claims('b', ['10.42.0.0/16'])]), ['b 10.42.0.0/16→244.1.0.0/16'])
  t.same(
    show([left, a, claims('b', ['10.42.0.0/16'])], '244.0.0.0/16'),
    ['b 10.42.0.0/16→244.0.0.0/16', 'l flat '],
    'until there is no other room',
  )
})

t.test('a translated cluster that is renumbered: another block only if it overlaps again', async (t) => {
  const blocks = { '10.42.0.0/16': '244.1.0.0/16' }
  const other = claims('a', ['10.42.0.0/16'], { translated: true, blocks: { '10.42.0.0/16': '244.0.0.0/16' } })
  const moved = (...podCIDRs: string[]): AddressClaims => claims('b', podCIDRs, { translated: true, blocks })
  const kept = 'b flat 10.42.0.0/16→244.1.0.0/16'
  const rows: [string, AddressClaims[], string[]][] = [
    ['overlaps nobody', [other, moved('10.77.0.0/16')], [kept]],
    ['overlaps nobody, with IPv6', [other, moved('fd00::/64', '10.77.0.0/16')], [kept]],
    ['several new ranges', [other, moved('10.77.0.0/16', '10.78.0.0/16')], [kept]],
    ['overlaps again', [other, moved('10.42.8.0/24')], ['b 10.42.0.0/16→244.1.0.0/16, 10.42.8.0/24→244.2.0.0/24']],
    [
      'one of the old ranges stays: its connections stay',
      [other, moved('10.42.0.0/16', '10.77.0.0/16')],
      ['b 10.42.0.0/16→244.1.0.0/16, 10.77.0.0/16→244.2.0.0/16'],
    ],
    ['no pods over IPv4 at all', [other, moved('fd00::/64')], []],
    ['one that has left is not touched', [other, { ...moved('10.77.0.0/16'), departed: true }], []],
  ]
  for (const [name, clusters, want] of rows) t.same(show(clusters), want, name)
  const [flat] = planAddresses([other, moved('10.77.0.0/16')], RANGE).values()
  const back = claims('b', ['10.42.0.0/16'], flat ?? {})
  t.same(show([other, back]), ['b 10.42.0.0/16→244.1.0.0/16'], 'it returns to the block that it had')
})

t.test('for any renumbering: a second plan changes nothing, and no two share an address', async () => {
  const cidr = fc.integer({ min: 0, max: 5 }).map((n) => `10.${n}.0.0/16`)
  const members = fc.array(fc.tuple(cidr, cidr), { minLength: 1, maxLength: 6 })
  fc.assert(
    fc.property(members, (list) => {
      const start = list.map(([first], i) => claims(`c${i}`, [first]))
      const joined = start.map((one) => ({ ...one, ...planAddresses(start, RANGE).get(one.id) }))
      const moved = joined.map((one, i) => ({ ...one, podCIDRs: [list[i]?.[1] ?? ''] }))
      const plan = planAddresses(moved, RANGE)
      const after = moved.map((one) => ({ ...one, ...plan.get(one.id) }))
      const seen = after.map((one) =>
        (one.translated ? globalCIDRs(one) : one.podCIDRs).map((text) => parsePrefix(text)),
      )
      return (
        planAddresses(after, RANGE).size === 0 &&
        seen.every((own, i) => seen.every((its, j) => i === j || !own.some((a) => its.some((b) => overlaps(a, b)))))
      )
    }),
    { numRuns: 200 },
  )
})

t.test('the global CIDR of an IPv6 CIDR is the CIDR itself', async (t) => {
  const row = { podCIDRs: ['fd00::/64', '10.42.0.0/16'], blocks: { '10.42.0.0/16': '244.1.0.0/16' } }
  t.same(globalCIDRs({ ...row, translated: true }), ['fd00::/64', '244.1.0.0/16'])
  t.same(globalCIDRs({ ...row, translated: false }), [])
})

t.test('no room', async (t) => {
  const full = ['a', 'b', 'c'].map((id) => claims(id, ['10.42.0.0/16']))
  t.throws(() => planAddresses(full, '244.0.0.0/15'), {
    name: 'NoRoomError',
    field: 'podCIDRs',
    message:
      'the global range 244.0.0.0/15 is exhausted: pod CIDR 10.42.0.0/16 of cluster "c" overlaps another cluster\'s and needs a /16 block, and no block is free (0 of 131072 addresses are free, 2 blocks are given): choose pod CIDRs that no other cluster uses, or smaller ones; or evict members that are gone for good ("sealane cluster list", "sealane cluster evict"); or create a clusterset with a larger range (--global-range at the first start of its broker)',
  })
  const two = [claims('a', ['10.42.0.0/18']), claims('b', ['10.42.0.0/17'])]
  t.throws(() => planAddresses(two, '244.0.0.0/17'), {
    message:
      /cluster "b" .* a \/17 block, and the largest free block is a \/18 \(16384 of 32768 addresses are free, 1 block is given\)/,
  })
  t.throws(() => planAddresses([claims('a', ['10.0.0.0/8']), claims('b', ['10.42.0.0/16'])], '244.0.0.0/12'), {
    name: 'NoRoomError',
    message:
      'pod CIDR 10.0.0.0/8 has to be translated (10.0.0.0/8 overlaps pods 10.42.0.0/16 of cluster b) and is larger than the global range 244.0.0.0/12',
  })
})

t.test('what all need is in nobody’s pods, and why is said', async (t) => {
  const all = [claims('a', ['203.0.113.0/28']), claims('b', ['10.44.0.0/16']), claims('c', ['203.0.114.0/24'])]
  const broker = neededRanges(['203.0.113.2', '2001:db8::2'], 'the broker')
  t.same(
    [...planAddresses(all, RANGE, broker)].map(([id]) => id),
    ['a'],
  )
  t.same([...addressOverlaps(all, broker)], [['a', '203.0.113.0/28 holds 203.0.113.2, the broker']])
  const machines = [claims('a', ['192.168.0.0/16']), claims('b', [], { needed: needs('192.168.1.0/24') })]
  t.same(
    [...addressOverlaps(machines)],
    [['a', '192.168.0.0/16 overlaps 192.168.1.0/24, in use by machines of cluster b']],
  )
  t.throws(() => planAddresses([claims('a', ['203.0.0.0/8'])], '244.0.0.0/12', broker), {
    name: 'NoRoomError',
    message:
      'pod CIDR 203.0.0.0/8 has to be translated (203.0.0.0/8 holds 203.0.113.2, the broker) and is larger than the global range 244.0.0.0/12',
  })
})

t.test('no pod of one member that others reach as it is has an address that another needs', async () => {
  const cidr = fc
    .tuple(fc.integer({ min: 0, max: 7 }), fc.integer({ min: 13, max: 32 }))
    .map(([n, length]) => `10.${length < 16 ? n & ~7 : n}.0.0/${length}`)
  const list = fc.array(cidr, { maxLength: 3 })
  const members = fc.array(fc.record({ podCIDRs: list, needed: list }), { maxLength: 6 })
  fc.assert(
    fc.property(members, list, (given, forAll) => {
      const all = given.map((one, i) => claims(`c${i}`, one.podCIDRs, { needed: needs(...one.needed) }))
      const plan = planAddresses(all, RANGE, needs(...forAll))
      return all.every((one) => {
        if (plan.has(one.id)) return true
        const others = all.filter((other) => other !== one).flatMap((other) => other.needed ?? [])
        const needed = [...others, ...needs(...forAll)]
        return one.podCIDRs.every((text) => neededIn(parsePrefix(text), needed) === undefined)
      })
    }),
  )
})

t.test('cluster numbers', async (t) => {
  t.equal(nextIndex([]), 1)
  t.equal(nextIndex([1, 2, 4]), 3)
  t.throws(() => nextIndex(Array.from({ length: 65_535 }, (_, i) => i + 1)), NoRoomError)
})

t.test('for any members: no two share an address, order does not matter, again changes nothing', async (t) => {
  const cidr = fc
    .tuple(fc.integer({ min: 0, max: 15 }), fc.integer({ min: 16, max: 20 }))
    .map(([n, length]) => `10.${n}.0.0/${length}`)
  const members = fc.uniqueArray(fc.record({ id: fc.stringMatching(/^[a-z]{1,3}$/), cidr }), {
    selector: (member) => member.id,
    maxLength: 12,
  })
  fc.assert(
    fc.property(members, (list) => {
      const start = list.map((member) => claims(member.id, [member.cidr]))
      const plan = planAddresses(start, RANGE)
      t.strictSame([...planAddresses([...start].reverse(), RANGE)], [...plan])
      const after = start.map((one) => ({ ...one, ...plan.get(one.id) }))
      t.equal(planAddresses(after, RANGE).size, 0)
      const seen = after.map((one) =>
        (one.translated ? globalCIDRs(one) : one.podCIDRs).map((text) => parsePrefix(text)),
      )
      return seen.every((own, i) =>
        seen.every((other, j) => i === j || !own.some((a) => other.some((b) => overlaps(a, b)))),
      )
    }),
    { numRuns: 200 },
  )
})

t.test('translated is exactly who overlaps another, pair by pair', async () => {
  const cidr = fc
    .tuple(fc.integer({ min: 0, max: 7 }), fc.integer({ min: 13, max: 18 }))
    .map(([n, length]) => `10.${length < 16 ? n & ~7 : n}.0.0/${length}`)
  const list = fc.array(cidr, { minLength: 1, maxLength: 3 })
  const members = fc.array(fc.record({ podCIDRs: list, serviceCIDRs: list }), { maxLength: 6 })
  fc.assert(
    fc.property(members, (given) => {
      const all = given.map((one, i) => claims(`c${i}`, one.podCIDRs, { serviceCIDRs: one.serviceCIDRs }))
      const plan = planAddresses(all, RANGE)
      const meet = (a: string, b: string): boolean => overlaps(parsePrefix(a), parsePrefix(b))
      return all.every((one) => {
        const others = all.filter((other) => other !== one).flatMap((o) => [...o.podCIDRs, ...o.serviceCIDRs])
        return plan.has(one.id) === one.podCIDRs.some((own) => others.some((other) => meet(own, other)))
      })
    }),
    { numRuns: 300 },
  )
})
