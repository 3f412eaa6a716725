import t from 'tap'
import { FakeRouteTable } from '../../../kernel/fake/fake-route-table.ts'
import { memberShares } from '../../../kernel/route/next-hop-table.ts'
import { nextHopTableCompliance } from '../../compliance/next-hop-table.ts'
import { group, hop, hop6, id, resilient, route } from '../../compliance/next-hop-stage.ts'

nextHopTableCompliance(t, () => {
  const routes = new FakeRouteTable()
  return { routes, hops: routes.nextHops }
})

const LANES = { links: [{ name: 'sealane0' }, { name: 'sealane1' }] }

t.test('prints itself as commands, with the rest of the node', async (t) => {
  const table = new FakeRouteTable(LANES)
  await table.nextHops.replaceHop(hop(1, 'sealane0'))
  await table.nextHops.replaceHop(hop(2, 'sealane1', { via: '246.0.0.1', onlink: true }))
  await table.nextHops.replaceHop(hop6(3, 'sealane1'))
  await table.nextHops.replaceGroup(resilient(10, [{ id: id(2), weight: 3 }, { id: id(1) }]))
  await table.nextHops.replaceGroup(group(11, [{ id: id(3) }]))
  await table.replaceRoute(route('244.1.0.0/16', 10))
  t.equal(
    table.toString(),
    [
      'ip -6 nexthop replace id 731400003 dev sealane1 proto 173',
      'ip nexthop replace id 731400001 dev sealane0 proto 173',
      'ip nexthop replace id 731400002 via 246.0.0.1 dev sealane1 onlink proto 173',
      'ip nexthop replace id 731400010 group 731400001/731400002,3 type resilient buckets 32 idle_timer 10 unbalanced_timer 15 proto 173',
      'ip nexthop replace id 731400011 group 731400003 proto 173',
      'ip route replace 244.1.0.0/16 nhid 731400010 table 7312 proto 173',
    ].join('\n'),
  )
})

t.test('buckets in which something flows stay', async (t) => {
  const { nextHops: hops } = new FakeRouteTable(LANES)
  await hops.replaceHop(hop(1, 'sealane0'))
  await hops.replaceHop(hop(2, 'sealane1'))
  await hops.replaceGroup(resilient(10, [{ id: id(1) }]))
  for (let index = 0; index < 30; index++) hops.carry(id(10), index)
  await hops.replaceGroup(resilient(10, [{ id: id(1) }, { id: id(2) }]))
  t.same(memberShares(await hops.buckets(id(10))), [
    { member: id(1), buckets: 30, idleMs: 0 },
    { member: id(2), buckets: 2, idleMs: 10_000 },
  ])
  await hops.remove(id(1))
  t.same(
    memberShares(await hops.buckets(id(10))).map(({ buckets }) => buckets),
    [32],
    'but not with a hop that is gone',
  )
})

t.test('older kernels', async (t) => {
  const EOPNOTSUPP = { code: 'EOPNOTSUPP' }
  const none = new FakeRouteTable({ ...LANES, nextHopFeatures: { objects: false, resilient: false } }).nextHops
  t.same(await none.features(), { objects: false, resilient: false })
  t.same(await none.list(), { hops: [], groups: [] })
  await t.rejects(none.replaceHop(hop(1, 'sealane0')), EOPNOTSUPP)
  await t.rejects(none.remove(id(1)), EOPNOTSUPP)
  await t.rejects(none.buckets(id(1)), EOPNOTSUPP)
  const plain = new FakeRouteTable({ ...LANES, nextHopFeatures: { objects: true, resilient: false } }).nextHops
  await plain.replaceHop(hop(1, 'sealane0'))
  await t.rejects(plain.replaceGroup(resilient(10, [{ id: id(1) }])), EOPNOTSUPP)
  await plain.replaceGroup(group(10, [{ id: id(1) }]))
})

t.test('an id that another program has', async (t) => {
  const { nextHops: hops } = new FakeRouteTable(LANES)
  hops.putForeign(id(1))
  await t.rejects(hops.replaceHop(hop(1, 'sealane0')), { code: 'EEXIST' })
  await t.rejects(hops.remove(id(1)), { code: 'ENOENT' })
  t.same(await hops.list(), { hops: [], groups: [] })
})
