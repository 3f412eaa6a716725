/** What members publish, against records counted one by one, and with more than an answer lists. */
import fc from 'fast-check'
import t from 'tap'
import { MAX_GATEWAYS, MAX_SERVICES, publishedNow, readPublished } from '../../../broker/admin/read-published.ts'
import { setTopology } from '../../../broker/records/topology-record.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import type { MemberRow } from '../../../broker/store/rows.ts'
import type { Topology } from '../../../model/records.ts'
import { endpointObject } from '../../support/objects/cluster-objects.ts'
import { JumpingClock } from '../../support/jumping-clock.ts'
import { anExport, facts } from '../support/harness.ts'

const ROW: MemberRow = {
  ...{ index: 0, facts: facts(), translated: false, blocks: {}, joinedAtMs: 1, lastSeenMs: 1 },
  ...{ certificates: [], complete: true },
}
const GONE: MemberRow = { ...ROW, departedAtMs: 2, departure: 'evicted' }
const IDS = ['a', 'b', 'c', 'd']
const { signal } = new AbortController()

const topology: fc.Arbitrary<Topology> = fc.oneof(
  fc.constant({ mode: 'full' as const }),
  fc.record({ mode: fc.constant('hub-and-spoke' as const), hubs: fc.subarray(IDS) }),
)
const exported = fc.record({
  owner: fc.constantFrom(...IDS),
  name: fc.constantFrom('s', 'u'),
  drained: fc.boolean(),
  readers: fc.option(fc.subarray(IDS), { nil: undefined }),
})
const kept = fc.record({
  by: fc.constantFrom(...IDS),
  cluster: fc.constantFrom('', ...IDS),
  name: fc.constantFrom('', 's'),
})

t.test('who exports and who imports', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      topology,
      fc.uniqueArray(exported, { maxLength: 6, selector: ({ owner, name }) => `${owner}/${name}` }),
      fc.array(kept, { maxLength: 3 }),
      async (chosen, exports, notImported) => {
        const log = openMemoryLog()
        await log.transact((tx) => {
          setTopology(tx, { topology: chosen }, 1)
          for (const id of IDS) {
            tx.put('member', id, ROW)
            const own = notImported
              .filter(({ by }) => by === id)
              .map(({ cluster, name }) => ({ reason: 'NamespaceMissing' as const, namespace: 'shop', name, cluster }))
            const body = { kind: 'MemberStatus' as const, notImported: own, leftOut: 0 }
            tx.put('record', `${id}/MemberStatus//${id}`, { createdAtMs: 1, body })
          }
          for (const { owner, name, drained, readers } of exports) {
            const { body } = anExport(name, drained ? { drained } : {})
            const row = { createdAtMs: 1, body, ...(readers && { readers }) }
            tx.put('record', `${owner}/ServiceExport/shop/${name}`, row)
          }
        })
        const linked = (a: string, b: string): boolean =>
          chosen.mode === 'full' || chosen.hubs?.includes(a) === true || chosen.hubs?.includes(b) === true
        const imports = (id: string, { owner, name, readers }: (typeof exports)[number]): boolean =>
          id !== owner &&
          linked(id, owner) &&
          readers?.includes(id) !== false &&
          !notImported.some(
            (one) => one.by === id && ['', owner].includes(one.cluster) && ['', name].includes(one.name),
          )
        const want = ['s', 'u'].flatMap((name) => {
          const own = exports.filter((one) => one.name === name)
          const importers = IDS.filter((id) => own.some((one) => imports(id, one)))
          if (own.length === 0) return []
          const exporters = own.map(({ owner }) => owner).sort()
          const drainedAt = own.flatMap(({ owner, drained }) => (drained ? [owner] : [])).sort()
          const counts = { exportersCount: exporters.length, importersCount: importers.length }
          return [
            { namespace: 'shop', name, type: 'ClusterSetIP', ips: [], exporters, drainedAt, importers, ...counts },
          ]
        })
        const { services, servicesCount } = await readPublished(log, signal)
        const text = (all: readonly object[]): string =>
          JSON.stringify(all.map((one) => Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1))))
        if (text(services) !== text(want) || servicesCount !== want.length) {
          throw new Error(`${text(services)} instead of ${text(want)}`)
        }
      },
    ),
    { numRuns: 200 },
  )
  t.pass('each service')
})

t.test('more than an answer lists, and members that are gone', async (t) => {
  const log = openMemoryLog()
  const endpoint = (cluster: string, node: string, lane: number) => {
    const { spec } = endpointObject({ cluster, node, lane })
    return { createdAtMs: 1, body: { kind: 'Endpoint' as const, spec } }
  }
  await log.transact((tx) => {
    for (let i = 0; i < 600; i += 1) {
      const id = `c${i}`
      tx.put('member', id, i === 0 ? GONE : ROW)
      for (const lane of [0, 1]) {
        const node = `gw${lane}`
        tx.put('record', `${id}/Endpoint//${id}.${node}-lane${lane}`, endpoint(id, node, lane))
      }
      for (let n = 0; n < 4; n += 1) {
        tx.put('record', `${id}/ServiceExport/shop/s${i}-${n}`, { createdAtMs: 1, body: anExport('s').body })
      }
      tx.put('record', `${id}/ServiceExport/shop/all`, { createdAtMs: 1, body: anExport('all').body })
    }
  })
  const found = await readPublished(log, signal)
  t.equal(found.gatewaysCount, 2 * 599)
  t.equal(found.gateways.length, MAX_GATEWAYS)
  t.same(
    found.gateways.slice(0, 2).map(({ cluster, node, lane }) => [cluster, node, lane]),
    [
      ['c1', 'gw0', 0],
      ['c1', 'gw1', 1],
    ],
  )
  t.equal(found.servicesCount, 4 * 599 + 1)
  t.equal(found.services.length, MAX_SERVICES)
  const [all] = found.services
  t.match(all, { name: 'all', exportersCount: 599, importersCount: 599 })
  t.same([all?.exporters.length, all?.importers.length], [20, 20])
  const stopped = AbortSignal.abort(new Error('no more'))
  await t.rejects(readPublished(log, stopped), /aborted|no more/)
})

t.test('all who ask at about the same time get one answer', async (t) => {
  const log = openMemoryLog()
  const clock = new JumpingClock()
  const put = (name: string) =>
    log.transact((tx) => {
      tx.put('member', 'a', ROW)
      tx.put('record', `a/ServiceExport/shop/${name}`, { createdAtMs: 1, body: anExport(name).body })
    })
  await put('one')
  const running = publishedNow(log, clock, signal)
  clock.jump(3_600_000)
  const [first, second] = await Promise.all([running, publishedNow(log, clock, signal)])
  t.equal(first, second, 'however long it takes')
  await put('two')
  t.equal(await publishedNow(log, clock, signal), first, 'it took long, so it is kept')
  clock.jump(61_000)
  t.equal((await publishedNow(log, clock, signal)).servicesCount, 2)
  clock.jump(61_000)
  const stopped = publishedNow(log, clock, AbortSignal.abort(new Error('no more')))
  await t.rejects(stopped, /aborted|no more/)
  t.equal((await publishedNow(log, clock, signal)).servicesCount, 2, 'a failure is not kept')
})
