/** The plan of a topology against pairs counted one by one, and with as many members as a clusterset may have. */
import fc from 'fast-check'
import t from 'tap'
import { planTopology } from '../../../broker/admin/preview-topology.ts'
import { setTopology } from '../../../broker/records/topology-record.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { MemberRow } from '../../../broker/store/rows.ts'
import { links } from '../../../model/lanes/topology.ts'
import type { Topology } from '../../../model/records.ts'
import { endpointObject } from '../../support/objects/cluster-objects.ts'
import { anExport, facts } from '../support/harness.ts'

const ROW: MemberRow = {
  index: 0,
  facts: facts(),
  translated: false,
  blocks: {},
  joinedAtMs: 1,
  lastSeenMs: 1,
  certificates: [],
  complete: true,
}
const IDS = ['a', 'b', 'c', 'd']
const { signal } = new AbortController()

const topology: fc.Arbitrary<Topology> = fc.oneof(
  fc.constant({ mode: 'full' as const }),
  fc.record({ mode: fc.constant('hub-and-spoke' as const), hubs: fc.subarray(IDS) }),
  fc.record({
    mode: fc.constant('groups' as const),
    groups: fc.array(fc.record({ name: fc.string(), clusters: fc.subarray(IDS) }), { maxLength: 3 }),
  }),
)
const finding = fc.record({
  reason: fc.constant('NamespaceMissing' as const),
  namespace: fc.constantFrom('', 'x', 'y'),
  name: fc.constantFrom('', 's', 'u'),
  cluster: fc.constantFrom('', ...IDS),
})
const exported = fc.record({
  owner: fc.constantFrom(...IDS),
  namespace: fc.constantFrom('x', 'y'),
  name: fc.constantFrom('s', 'u'),
  readers: fc.option(fc.subarray(IDS), { nil: undefined }),
})

t.test('as counted one by one', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      topology,
      topology,
      fc.array(exported, { maxLength: 6 }),
      fc.array(fc.array(finding, { maxLength: 3 }), { minLength: 4, maxLength: 4 }),
      async (before, after, exports, findings) => {
        const log = openMemoryLog()
        await log.transact((tx) => {
          setTopology(tx, { topology: before }, 1)
          for (const [i, id] of IDS.entries()) {
            tx.put('member', id, ROW)
            const body = { kind: 'MemberStatus' as const, notImported: findings[i] ?? [], leftOut: 0 }
            tx.put('record', `${id}/MemberStatus//${id}`, { createdAtMs: 1, body })
          }
          for (const { owner, namespace, name, readers } of exports) {
            const row = { createdAtMs: 1, body: anExport(name).body, ...(readers && { readers }) }
            tx.put('record', `${owner}/ServiceExport/${namespace}/${name}`, row)
          }
        })
        const want = new Map<string, { loses: string[]; gains: string[] }>()
        for (const { key, value } of log.list('record')) {
          const [owner = '', kind, namespace, name] = key.split('/')
          if (kind !== 'ServiceExport') continue
          const lists: { loses: string[]; gains: string[] } = { loses: [], gains: [] }
          for (const [i, id] of IDS.entries()) {
            const [was, is] = [before, after].map((one) => links(one, { id: owner }, { id }).linked)
            if (was === is || value.readers?.includes(id) === false) continue
            const isReported = findings[i]?.some(
              (one) =>
                (one.cluster === '' || one.cluster === owner) &&
                (one.namespace === '' ? one.name === '' : one.namespace === namespace) &&
                (one.name === '' || one.name === name),
            )
            if (isReported !== true) lists[is === true ? 'gains' : 'loses'].push(id)
          }
          if (lists.loses.length + lists.gains.length > 0) want.set(`${owner}/${namespace}/${name}`, lists)
        }
        const plan = await planTopology(log, after, { signal })
        const got = plan.services.map(({ exporter, namespace, name, loses, gains, losesCount, gainsCount }) => {
          if (losesCount !== loses.length || gainsCount !== gains.length) throw new Error('counts')
          return [`${exporter}/${namespace}/${name}`, { loses, gains }] as const
        })
        const text = (all: Iterable<unknown>): string => JSON.stringify([...all].sort())
        if (text(got) !== text(want)) throw new Error(`${text(got)} instead of ${text(want)}`)
        const { services } = await planTopology(log, after, { linksOnly: true, signal })
        if (services.length > 0) throw new Error('links only')
      },
    ),
    { numRuns: 300 },
  )
  t.pass('each service')
})

t.test('a thousand members: the event loop goes on, and the plan stays small', async (t) => {
  const log = openMemoryLog()
  await log.transact((tx) => {
    for (let i = 0; i < 1000; i += 1) {
      tx.put('member', `c${i}`, ROW)
      for (let n = 0; n < 5; n += 1)
        tx.put('record', `c${i}/ServiceExport/shop/s${n}`, { createdAtMs: 1, body: anExport('s').body })
    }
  })
  let turns = 0
  let isOver = false
  const count = (): void => {
    turns += 1
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  const plan = await planTopology(log, { mode: 'hub-and-spoke', hubs: ['c0'] }, { signal })
  isOver = true
  t.ok(turns > 1000, `${turns} turns of the event loop`)
  t.match(plan, { links: { after: 999, lost: 498_501, gained: 0 }, servicesChanged: 4995 })
  t.equal(plan.services.length, 1000)
  t.match(plan.services[0], { losesCount: 998, gainsCount: 0 })
  t.ok(JSON.stringify(plan).length < 1_000_000)
  const stopped = AbortSignal.abort(new Error('the caller has gone'))
  await t.rejects(planTopology(log, { mode: 'full' }, { signal: stopped }))
})

/** Hubs h1 and h2 with a relay each, of an earlier release by default, and spokes c0 to c<count - 1>: one gateway each. */
async function hubsAndSpokes(count: number, before: Topology, relay: readonly string[] = ['relay']) {
  const log = openMemoryLog()
  const ids = ['h1', 'h2', ...Array.from({ length: count }, (_, i) => `c${i}`)]
  await log.transact((tx) => {
    setTopology(tx, { topology: before }, 1)
    for (const id of ids) {
      tx.put('member', id, ROW)
      const { spec } = endpointObject({ cluster: id, capabilities: id.startsWith('h') ? [...relay] : [] })
      tx.put('record', `${id}/Endpoint//gw`, { createdAtMs: 1, body: { kind: 'Endpoint', spec } })
    }
  })
  return log
}

function through(...via: readonly string[]): Topology {
  return { mode: 'hub-and-spoke', hubs: ['h1', 'h2'], ...(via.length === 0 ? {} : { via }) }
}

t.test('a link moves only if none of its relays stays', async (t) => {
  const beside = (hub: string, ...via: readonly string[]): Topology => {
    return { mode: 'hub-and-spoke', hubs: ['h1', 'h2', hub], via }
  }
  const rows: readonly (readonly [before: Topology, after: Topology, moved: number])[] = [
    // What stays has left the clusterset, or does not relay: it carries no link.
    [beside('gone', 'gone', 'h1'), beside('gone', 'gone', 'h2'), 3],
    [beside('c0', 'c0', 'h1'), beside('c0', 'c0', 'h2'), 1],
    [beside('gone', 'gone', 'h1'), beside('gone', 'gone', 'h1', 'h2'), 0],
    [beside('gone', 'gone'), beside('gone', 'gone'), 0],
    [through('h1'), through('h1', 'h2'), 0],
    [through('h1', 'h2'), through('h2'), 0],
    [through('h1'), through('h2'), 3],
    [through('h1'), { mode: 'full' }, 3],
    [{ mode: 'full' }, through('h1'), 3],
    [through(), through('h1'), 0],
    [{ mode: 'full' }, { mode: 'groups', groups: [{ name: 'all', clusters: ['c0', 'c1', 'c2'] }] }, 0],
  ]
  for (const [before, after, moved] of rows) {
    const { transit, changes } = await planTopology(await hubsAndSpokes(3, before), after, { signal })
    const listed = changes.filter(({ change }) => change === 'transit' || change === 'direct')
    t.same([transit?.moved ?? 0, listed.length], [moved, moved], JSON.stringify([before, after]))
  }
})

t.test('relays of unequal size', async (t) => {
  const log = await hubsAndSpokes(20, { mode: 'full' }, ['relay', 'relay-shares-ports'])
  const { spec } = endpointObject({ cluster: 'h2', capabilities: ['relay'] })
  await log.transact((tx) => tx.put('record', 'h2/Endpoint//gw', { createdAtMs: 1, body: { kind: 'Endpoint', spec } }))
  const { transit } = await planTopology(log, through('h1', 'h2'), { signal })
  // Each link is bound at both, and the smaller one has 99 pairs, of which one member may have 49.
  t.match(transit?.crowded, [{ links: 190, room: 99, linksOfMember: 19, roomOfMember: 49 }])
})

t.test('more links than the ports of relays suffice for', async (t) => {
  const star = (spokes: number): Topology => {
    const and = { clusters: Array.from({ length: spokes }, (_, i) => `c${i}`) }
    const between = { clusters: ['c0'] }
    return {
      mode: 'pairs',
      pairs: [
        { between: { clusters: ['h1'] }, and },
        { between, and, via: ['h1'] },
      ],
    }
  }
  const shared = ['relay', 'relay-shares-ports']
  const rows: readonly (readonly [spokes: number, after: Topology, want: readonly object[], relay?: string[]])[] = [
    [14, through('h1'), []],
    [15, through('h1'), [{ via: ['h1'], links: 105, room: 99, linksOfMember: 14, roomOfMember: 49 }]],
    [15, through('h1', 'h2'), [{ links: 105, room: 99 }]],
    [50, star(50), []],
    [51, star(51), [{ links: 50, room: 99, member: 'c0', linksOfMember: 50, roomOfMember: 49 }]],
    [45, through('h1'), [], shared],
    [46, through('h1'), [{ links: 1035, room: 1024, linksOfMember: 45, roomOfMember: 199 }], shared],
    [46, through('h1', 'h2'), [{ links: 1035, room: 1024 }], shared],
    [200, star(200), [], shared],
    [201, star(201), [{ links: 200, room: 1024, member: 'c0', linksOfMember: 200, roomOfMember: 199 }], shared],
  ]
  for (const [spokes, after, want, relay] of rows) {
    const { transit } = await planTopology(await hubsAndSpokes(spokes, { mode: 'full' }, relay), after, { signal })
    t.equal(transit?.crowded?.length, want.length, `${spokes} spokes`)
    t.match(transit?.crowded, want)
  }
})
