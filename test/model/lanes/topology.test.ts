/** Who links with whom, by every mode: a table, and what holds for any topology. */
import fc from 'fast-check'
import t from 'tap'
import {
  type LinkCause,
  links,
  looksAtLabels,
  mayRelay,
  namedClusters,
  transitClusters,
} from '../../../model/lanes/topology.ts'
import type { Topology } from '../../../model/records.ts'
import { readTopology } from '../../../model/schemas/topology.ts'

const prod = { selector: { matchLabels: { env: 'prod' } } }
const GROUPS: Topology = {
  mode: 'groups',
  groups: [
    { name: 'north', clusters: ['oslo', 'paris'] },
    { name: 'south', clusters: ['milano', 'paris'] },
  ],
}
const HUBS: Topology = { mode: 'hub-and-spoke', hubs: ['oslo', 'paris'] }
const NAMED: Topology = {
  mode: 'pairs',
  pairs: [{ between: { clusters: ['oslo', 'paris'] }, and: { clusters: ['milano'] } }],
}
const VIA: Topology = { mode: 'hub-and-spoke', hubs: ['oslo', 'paris'], via: ['oslo'] }
/** The hub links with both sides, as it must, and another pair is linked directly. */
const VIA_PAIRS: Topology = {
  mode: 'pairs',
  pairs: [
    { between: { clusters: ['oslo', 'riga'] }, and: { clusters: ['milano', 'roma', 'tokyo'] } },
    { between: { clusters: ['roma'] }, and: { clusters: ['nice'] } },
    { between: { clusters: ['milano'] }, and: { clusters: ['roma', 'tokyo', 'oslo'] }, via: ['riga', 'oslo'] },
    { between: { clusters: ['milano'] }, and: { clusters: ['tokyo'] }, via: ['nice'] },
    { between: { clusters: ['nice'] }, and: { clusters: ['roma'] }, via: ['oslo'] },
  ],
}
const LABELS: Topology = { mode: 'pairs', pairs: [{ between: prod, and: { clusters: ['milano'], ...prod } }] }

t.test('each mode, also for clusters that it does not name', async (t) => {
  const rows: readonly (readonly [topology: Topology, a: string, b: string, by: LinkCause, linked?: true])[] = [
    [{ mode: 'full' }, 'oslo', 'tokyo', 'full', true],
    [GROUPS, 'oslo', 'paris', 'common-group', true],
    [GROUPS, 'paris', 'milano', 'common-group', true],
    [GROUPS, 'oslo', 'milano', 'no-common-group'],
    [GROUPS, 'oslo', 'tokyo', 'no-group'],
    [GROUPS, 'tokyo', 'tokyo', 'self', true],
    [HUBS, 'oslo', 'paris', 'hub', true],
    [HUBS, 'oslo', 'tokyo', 'hub', true],
    [HUBS, 'milano', 'tokyo', 'both-spokes'],
    [NAMED, 'milano', 'oslo', 'pair', true],
    [NAMED, 'oslo', 'paris', 'no-pair'],
    [NAMED, 'milano', 'tokyo', 'no-pair'],
    [VIA, 'milano', 'tokyo', 'transit', true],
    [VIA, 'milano', 'paris', 'hub', true],
    [VIA_PAIRS, 'milano', 'roma', 'transit', true],
    [VIA_PAIRS, 'milano', 'oslo', 'pair', true],
    [VIA_PAIRS, 'nice', 'roma', 'pair', true],
    [VIA_PAIRS, 'roma', 'tokyo', 'no-pair'],
  ]
  for (const [topology, a, b, by, linked = false] of rows) {
    const answer = links(topology, { id: a }, { id: b })
    t.same([answer.linked, answer.by], [linked, by], `${topology.mode} ${a} ${b}`)
    t.equal('reason' in answer ? answer.reason : undefined, linked ? undefined : 'NotLinkedByTopology')
  }
})

t.test('who relays between spokes', async (t) => {
  const via = (topology: Topology, a: string, b: string): readonly string[] | undefined => {
    const answer = links(topology, { id: a }, { id: b })
    return answer.linked ? answer.via : []
  }
  t.same(via(VIA, 'milano', 'tokyo'), ['oslo'])
  t.equal(via(VIA, 'oslo', 'tokyo'), undefined, 'a hub is linked without a relay')
  t.same(via(VIA_PAIRS, 'milano', 'tokyo'), ['nice', 'oslo', 'riga'], 'the hubs of all pairs that name the two')
  t.same(via(VIA_PAIRS, 'roma', 'milano'), ['oslo', 'riga'])
  t.equal(via(VIA_PAIRS, 'roma', 'nice'), undefined, 'a pair that links directly wins')
  t.equal(via(VIA_PAIRS, 'milano', 'oslo'), undefined, 'a hub links directly with the other side')
  const may = (topology: Topology, relay: string, a: string, b: string): boolean =>
    mayRelay(topology, { id: relay }, [{ id: a }, { id: b }])
  const rows: readonly (readonly [topology: Topology, relay: string, a: string, b: string, may: boolean])[] = [
    [VIA, 'oslo', 'milano', 'tokyo', true],
    [VIA, 'paris', 'milano', 'tokyo', false],
    [VIA, 'paris', 'oslo', 'tokyo', true],
    [VIA, 'nice', 'milano', 'tokyo', false],
    [VIA_PAIRS, 'oslo', 'milano', 'roma', true],
    [VIA_PAIRS, 'nice', 'milano', 'tokyo', false],
    [HUBS, 'oslo', 'milano', 'tokyo', false],
    [GROUPS, 'paris', 'oslo', 'milano', false],
    [{ mode: 'full' }, 'paris', 'oslo', 'milano', true],
    [{ mode: 'full' }, 'paris', 'paris', 'milano', false],
    [{ mode: 'full' }, 'paris', 'oslo', 'oslo', false],
  ]
  for (const [topology, relay, a, b, want] of rows) {
    t.equal(may(topology, relay, a, b), want, `${topology.mode}: ${relay} between ${a} and ${b}`)
    t.equal(may(topology, relay, b, a), want, 'for both ends alike')
  }
  t.same([VIA, VIA_PAIRS, HUBS].map(transitClusters), [['oslo'], ['nice', 'oslo', 'riga'], []])
})

t.test('labels count as the clusters have them, and unknown ones match nothing', async (t) => {
  const milano = { id: 'milano', labels: { env: 'prod' } }
  const linked = (b: Parameters<typeof links>[2], a = milano): boolean => links(LABELS, a, b).linked
  t.ok(linked({ id: 'oslo', labels: { env: 'prod' } }))
  t.notOk(linked({ id: 'oslo', labels: { env: 'test' } }))
  t.notOk(linked({ id: 'oslo', labels: {} }))
  t.notOk(linked({ id: 'oslo' }))
  t.notOk(linked({ id: 'oslo', labels: { env: 'prod' } }, { id: 'milano', labels: { env: 'test' } }))
  const any: Topology = { mode: 'pairs', pairs: [{ between: { selector: {} }, and: { clusters: ['milano'] } }] }
  t.ok(links(any, { id: 'milano' }, { id: 'oslo', labels: {} }).linked, 'an empty selector is all members')
  t.same([LABELS, NAMED, GROUPS].map(looksAtLabels), [true, false, false])
})

const id = fc.constantFrom('a', 'b', 'c', 'd', 'e')
const ids = fc.array(id, { minLength: 1, maxLength: 4 })
const side = fc.oneof(
  ids.map((clusters) => ({ clusters })),
  fc.constantFrom('x', 'y').map((value) => ({ selector: { matchLabels: { l: value } } })),
)
const anyTopology: fc.Arbitrary<Topology> = fc.oneof(
  fc.constant({ mode: 'full' as const }),
  fc.array(ids, { minLength: 1, maxLength: 3 }).map((lists) => ({
    mode: 'groups' as const,
    groups: lists.map((clusters, i) => ({ name: `g${i}`, clusters })),
  })),
  ids.map((hubs) => ({ mode: 'hub-and-spoke' as const, hubs })),
  ids.map((hubs) => ({ mode: 'hub-and-spoke' as const, hubs, via: hubs.slice(0, 2) })),
  fc
    .array(fc.record({ between: side, and: side, via: ids }, { requiredKeys: ['between', 'and'] }), {
      minLength: 1,
      maxLength: 3,
    })
    .map((pairs) => ({ mode: 'pairs' as const, pairs })),
)
const end = fc.record({
  id,
  labels: fc.option(
    fc.constantFrom('x', 'y').map((l) => ({ l })),
    { nil: undefined },
  ),
})

t.test('it is symmetric and total, a cluster links with itself, and every no has its reason', async (t) => {
  fc.assert(
    fc.property(anyTopology, end, end, (topology, a, b) => {
      const [one, other] = [links(topology, a, b), links(topology, b, a)]
      if (a.id === b.id && !one.linked) return false
      if (one.linked && other.linked && one.via?.join() !== other.via?.join()) return false
      return one.linked === other.linked && one.by === other.by && one.linked !== 'reason' in one
    }),
    { numRuns: 1000 },
  )
  fc.assert(
    fc.property(anyTopology, end, end, end, (topology, relay, a, b) => {
      if (!mayRelay(topology, relay, [a, b])) return true
      const way = links(topology, a, b)
      const reached = [links(topology, relay, a), links(topology, relay, b)]
      return way.linked && reached.every((one) => one.linked && one.via === undefined)
    }),
    { numRuns: 2000 },
  )
  t.pass('a relay reaches both ends without a relay, so there is no loop')
  fc.assert(
    fc.property(anyTopology, end, end, (topology, a, b) => {
      const read = readTopology(topology)
      if (!('topology' in read)) return false
      const [one, other] = [links(read.topology, a, b), links(topology, a, b)]
      const via = (of: typeof one): string | undefined =>
        of.linked && of.via ? [...new Set(of.via)].sort().join() : undefined
      return one.linked === other.linked && via(one) === via(other)
    }),
    { numRuns: 1000 },
  )
  t.pass('and what the reader sorts means the same')
})

t.test('the names of a topology', async (t) => {
  t.same([GROUPS, HUBS, NAMED].map(namedClusters), [
    ['milano', 'oslo', 'paris'],
    ['oslo', 'paris'],
    ['milano', 'oslo', 'paris'],
  ])
})

t.test('pairs of clusters for which the same is stated share one list', (t) => {
  const pair = (via: readonly string[], ...clusters: readonly string[]) => ({
    ...{ between: { clusters: ['a'] }, and: { clusters }, via },
  })
  const topology: Topology = { mode: 'pairs', pairs: [pair(['x'], 'b', 'c', 'd'), pair(['y', 'w'], 'c', 'd')] }
  const via = (id: string): readonly string[] | undefined => {
    const answer = links(topology, { id: 'a' }, { id })
    return answer.linked ? answer.via : undefined
  }
  t.strictSame([via('b'), via('c')], [['x'], ['w', 'x', 'y']])
  t.equal(via('c'), via('d'), 'one list for both')
  t.end()
})
