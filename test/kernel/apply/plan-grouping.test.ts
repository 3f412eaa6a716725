/** Routes with several next hops, and the groups made of them. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { groupRoutes } from '../../../kernel/apply/plan-next-hops.ts'
import { formatRoute } from '../../../kernel/route/format-ip.ts'
import { type NextHopFeatures, formatGroup, formatHop } from '../../../kernel/route/next-hop-table.ts'
import type { NextHop, Route } from '../../../kernel/route/route-table.ts'
import { NEXT_HOP_IDS_LANES } from '../../../model/kernel-ids.ts'

const RESILIENT = { objects: true, resilient: true } as const
const PLAIN = { objects: true, resilient: false } as const
const NONE = { objects: false, resilient: false } as const

const REMOTES: Readonly<Record<string, number>> = {
  '244.1.0.0/16': 2,
  '10.9.0.0/16': 2,
  '244.2.0.0/16': 3,
  'fd42::/48': 2,
}

function route(destination: string, ...hops: (string | NextHop)[]): Route {
  const nextHops = hops.map((hop) => (typeof hop === 'string' ? { device: hop } : hop))
  return { table: 7311, destination, type: 'unicast', nextHops }
}

function grouped(routes: readonly Route[], features: NextHopFeatures = RESILIENT): string[] {
  const plan = groupRoutes(routes, features, {
    ids: NEXT_HOP_IDS_LANES,
    remoteOf: ({ destination }) => REMOTES[destination],
    numberOf: ({ device }) => (/^sealane\d$/.test(device) ? Number(device.slice(7)) : undefined),
  })
  return [
    ...plan.nextHops.hops.map(formatHop),
    ...plan.nextHops.groups.map(formatGroup),
    ...plan.routes.map(formatRoute),
  ].map((text) => text.replaceAll(/731100|731101| proto 173| table 7311/g, '').replaceAll('replace ', ''))
}

t.test('one group for each cluster and family, hops by their devices', async (t) => {
  const routes = [
    route('244.1.0.0/16', 'sealane1', 'sealane0'),
    route('10.9.0.0/16', 'sealane0', 'sealane1'),
    route('244.2.0.0/16', 'sealane1'),
    route('fd42::/48', { device: 'sealane0', via: 'fe80::1', onlink: true }),
  ]
  t.strictSame(grouped(routes), [
    'ip nexthop id 000 dev sealane0',
    'ip -6 nexthop id 001 via fe80::1 dev sealane0 onlink',
    'ip nexthop id 002 dev sealane1',
    'ip nexthop id 004 group 000/002 type resilient buckets 64 idle_timer 1 unbalanced_timer 10',
    'ip nexthop id 005 group 001 type resilient buckets 64 idle_timer 1 unbalanced_timer 10',
    'ip nexthop id 006 group 002 type resilient buckets 64 idle_timer 1 unbalanced_timer 10',
    'ip route 244.1.0.0/16 nhid 004',
    'ip route 10.9.0.0/16 nhid 004',
    'ip route 244.2.0.0/16 nhid 006',
    'ip -6 route fd42::/48 nhid 005',
  ])
})

t.test('by what the kernel has', async (t) => {
  const routes = [route('244.1.0.0/16', 'sealane0', { device: 'sealane2', weight: 3 })]
  t.match(
    grouped(routes, PLAIN),
    ['', '', 'ip nexthop id 004 group 000/004,3', 'ip route 244.1.0.0/16 nhid 004'].slice(2, 2),
  )
  t.equal(grouped(routes, PLAIN)[2], 'ip nexthop id 004 group 000/004,3')
  t.strictSame(grouped(routes, NONE), [
    'ip route 244.1.0.0/16 nexthop dev sealane0 weight 1 nexthop dev sealane2 weight 3',
  ])
})

t.test('what stays as it is', async (t) => {
  const rows: [say: string, routes: Route[]][] = [
    ['to no cluster', [route('246.0.2.0/32', 'sealane0')]],
    ['over a hop that nobody numbered', [route('244.1.0.0/16', 'eth0')]],
    ['over one hop twice', [route('244.1.0.0/16', 'sealane0', 'sealane0')]],
    ['a refusal', [{ table: 7312, destination: '244.1.0.0/16', type: 'unreachable', nextHops: [] }]],
  ]
  for (const [say, routes] of rows) {
    const { routes: after, nextHops } = groupRoutes(routes, RESILIENT, {
      ids: NEXT_HOP_IDS_LANES,
      remoteOf: ({ destination }) => REMOTES[destination],
      numberOf: ({ device }) => (device === 'sealane0' ? 0 : undefined),
    })
    t.strictSame(after, routes, say)
    t.strictSame(nextHops, { hops: [], groups: [] }, say)
  }
})

t.test('a route that goes other ways than the rest of its cluster keeps its own', async (t) => {
  const texts = grouped([route('244.1.0.0/16', 'sealane0', 'sealane1'), route('10.9.0.0/16', 'sealane1')])
  t.equal(texts.at(-2), 'ip route 244.1.0.0/16 nhid 004')
  t.equal(texts.at(-1), 'ip route 10.9.0.0/16 dev sealane1')
})

t.test('ids stay in the block, and no two things have one', async (t) => {
  const cluster = fc.record({
    index: fc.nat(0xffff),
    hops: fc.uniqueArray(fc.nat(499), { minLength: 1, maxLength: 8 }),
  })
  const clusters = fc.uniqueArray(cluster, { selector: ({ index }) => index, maxLength: 20 })
  fc.assert(
    fc.property(clusters, (all) => {
      const remotes = new Map(all.map(({ index }, i) => [`10.${i}.0.0/16`, index]))
      const routes = all.map(({ hops }, i) => route(`10.${i}.0.0/16`, ...hops.map((hop) => `d${hop}`)))
      const plan = groupRoutes(routes, RESILIENT, {
        ids: NEXT_HOP_IDS_LANES,
        remoteOf: ({ destination }) => remotes.get(destination),
        numberOf: ({ device }) => Number(device.slice(1)),
      })
      const ids = [...plan.nextHops.hops, ...plan.nextHops.groups].map(({ id }) => id)
      assert.equal(new Set(ids).size, ids.length)
      assert.ok(ids.every((id) => id >= NEXT_HOP_IDS_LANES.first && id <= NEXT_HOP_IDS_LANES.last))
      const hops = new Set(plan.nextHops.hops.map(({ id }) => id))
      for (const { members } of plan.nextHops.groups) assert.ok(members.every(({ id }) => hops.has(id)))
      assert.deepEqual(
        new Set(plan.routes.map((one) => one.nextHopId)),
        new Set(plan.nextHops.groups.map(({ id }) => id)),
      )
    }),
  )
  t.pass()
})
