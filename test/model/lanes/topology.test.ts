/** Who links with whom, by every mode: a table, and what holds for any topology. */
import fc from 'fast-check'
import t from 'tap'
import { type LinkCause, links, looksAtLabels, namedClusters } from '../../../model/lanes/topology.ts'
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
  ]
  for (const [topology, a, b, by, linked = false] of rows) {
    const answer = links(topology, { id: a }, { id: b })
    t.same([answer.linked, answer.by], [linked, by], `${topology.mode} ${a} ${b}`)
    t.equal('reason' in answer ? answer.reason : undefined, linked ? undefined : 'NotLinkedByTopology')
  }
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
  fc
    .array(fc.record({ between: side, and: side }), { minLength: 1, maxLength: 3 })
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
      return one.linked === other.linked && one.by === other.by && one.linked !== 'reason' in one
    }),
    { numRuns: 1000 },
  )
  fc.assert(
    fc.property(anyTopology, end, end, (topology, a, b) => {
      const read = readTopology(topology)
      return 'topology' in read && links(read.topology, a, b).linked === links(topology, a, b).linked
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
