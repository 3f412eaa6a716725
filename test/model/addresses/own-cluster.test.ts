import fc from 'fast-check'
import t from 'tap'
import { type OwnFacts, believedCluster, rangeProblem, rangesProblem } from '../../../model/addresses/own-cluster.ts'
import type { ClusterSpec } from '../../../model/objects.ts'

const LOCAL: ClusterSpec = {
  id: 'milano',
  index: 3,
  podCIDRs: ['10.42.0.0/16', 'fd00:1::/48'],
  serviceCIDRs: ['10.43.0.0/16'],
  globalCIDRs: [],
  labels: { region: 'eu' },
}
const { podCIDRs, serviceCIDRs, labels } = LOCAL
const STATED = { podCIDRs, serviceCIDRs, labels }
const OWN: OwnFacts = { id: 'milano', stated: STATED, local: LOCAL, globalRange: '244.0.0.0/8' }
const FOUR = { podCIDRs: ['10.42.0.0/16'] }

t.test('what is believed', async (t) => {
  const rows: readonly (readonly [
    name: string,
    reported: Partial<ClusterSpec>,
    own: Partial<OwnFacts>,
    problem?: string,
  ])[] = [
    ['the same', {}, {}],
    ['IPv6 is left out', FOUR, {}],
    ['IPv6 is back', {}, { local: { ...LOCAL, ...FOUR } }],
    ['a global CIDR', { globalCIDRs: ['244.7.0.0/16', 'fd00:1::/48'] }, {}],
    ['another one', { ...FOUR, globalCIDRs: ['244.8.0.0/16'] }, { local: { ...LOCAL, globalCIDRs: ['244.7.0.0/16'] } }],
    ['written otherwise', { podCIDRs: ['10.42.0.0/16', 'FD00:1:0::/48'] }, {}],
    ['a range as stated now', { podCIDRs: ['10.50.0.0/16'] }, { stated: { ...STATED, podCIDRs: ['10.50.0.0/16'] } }],
    ['of which the API knows nothing', { index: 9 }, { local: undefined }],
    ['where nobody knows the global range', { ...FOUR, globalCIDRs: ['242.0.0.0/16'] }, { globalRange: undefined }],
    ['only the API states', { globalCIDRs: ['244.7.0.0/16', 'fd00:1::/48'] }, { stated: undefined }],
    [
      'nothing but IPv6',
      { podCIDRs: ['fd00:1::/48'] },
      {},
      'podCIDRs fd00:1::/48: expected 10.42.0.0/16, fd00:1::/48, as this cluster states',
    ],
    [
      'in another order',
      { podCIDRs: ['fd00:1::/48', '10.42.0.0/16'] },
      {},
      'podCIDRs fd00:1::/48, 10.42.0.0/16: expected 10.42.0.0/16, fd00:1::/48, as this cluster states',
    ],
    [
      'not an address',
      { podCIDRs: ['x'] },
      {},
      'podCIDRs x: expected 10.42.0.0/16, fd00:1::/48, as this cluster states',
    ],
    ['another id', { id: 'paris' }, {}, 'id "paris": expected milano'],
    ['another number', { index: 4 }, {}, 'index 4: expected 3, that of the join'],
    [
      'of before',
      FOUR,
      { stated: { ...STATED, podCIDRs: ['10.50.0.0/16'] } },
      'podCIDRs 10.42.0.0/16: expected 10.50.0.0/16, as this cluster states',
    ],
    ['no Services', { serviceCIDRs: [] }, {}, 'serviceCIDRs none: expected 10.43.0.0/16, as this cluster states'],
    [
      'global, but elsewhere',
      { ...FOUR, globalCIDRs: ['243.0.0.0/16'] },
      {},
      'globalCIDRs 243.0.0.0/16: expected inside the global range 244.0.0.0/8',
    ],
    [
      'global, on Services',
      { ...FOUR, globalCIDRs: ['10.43.0.0/16'] },
      { globalRange: '10.0.0.0/8' },
      'globalCIDRs 10.43.0.0/16 overlaps 10.43.0.0/16 of this cluster',
    ],
  ]
  for (const [name, change, own, problem] of rows) {
    const reported = { ...LOCAL, ...change }
    const facts = { ...OWN, ...own }
    const want = problem === undefined ? { spec: reported } : { spec: facts.local, problem }
    t.strictSame(believedCluster(reported, facts), want, name)
  }
  t.strictSame(believedCluster(undefined, OWN), { spec: LOCAL }, 'nothing is told')
  const reported = { ...LOCAL, ...FOUR }
  t.equal(believedCluster(reported, OWN).spec, reported, 'it stays the same object')
  t.strictSame(believedCluster({ ...reported, labels: {} }, OWN).spec, reported, 'labels are its own')
})

t.test('whatever is told, pods and Services are those that are stated, perhaps without IPv6', async () => {
  const text = fc.oneof(
    fc.constantFrom(...podCIDRs, ...serviceCIDRs, '0.0.0.0/0', '::/0', '244.1.0.0/16', 'x', ''),
    fc.string({ maxLength: 20 }),
  )
  const list = fc.array(text, { maxLength: 4 })
  const spec = fc.record({
    id: fc.constantFrom('milano', 'paris'),
    index: fc.nat(4),
    podCIDRs: list,
    serviceCIDRs: list,
    globalCIDRs: list,
    labels: fc.constant({}),
  })
  fc.assert(
    fc.property(spec, (reported) => {
      const { spec: found } = believedCluster(reported, OWN)
      if (found === undefined) throw new Error('the local one is lost')
      return (
        found.id === 'milano' &&
        found.index === 3 &&
        rangesProblem(found, STATED) === undefined &&
        found.globalCIDRs.every((cidr) => cidr.startsWith('244.') || cidr === 'fd00:1::/48') &&
        found.labels === labels
      )
    }),
  )
})

t.test('ranges of a clusterset', async (t) => {
  const rows = [
    ['244.0.0.0/8', undefined],
    ['', undefined],
    ['x', 'globalRange "x": expected a CIDR such as 10.42.0.0/16'],
    ['240.0.0.0/6', undefined],
    ['0.0.0.0/0', 'globalRange 0.0.0.0/0: unspecified addresses'],
    ['240.0.0.0/5', "globalRange 240.0.0.0/5 overlaps the lanes' 246.0.0.0/8"],
    ['224.0.0.0/8', 'globalRange 224.0.0.0/8: multicast addresses'],
    ['fd00::/64', 'globalRange fd00::/64: expected IPv4'],
    ['10.42.128.0/17', 'globalRange 10.42.128.0/17 overlaps 10.42.0.0/16 of this cluster'],
  ] as const
  for (const [range, want] of rows) t.equal(rangeProblem('globalRange', range, STATED), want, range)
})
