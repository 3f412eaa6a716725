/** Whatever is exported and reported, and when: a spoke reads what a hub says of its services, and nothing of others. */
import fc from 'fast-check'
import t from 'tap'
import { Views } from '../../../broker/sessions/filter.ts'
import { LiveBatches } from '../../../broker/sessions/live-batches.ts'
import { Snapshots } from '../../../broker/sessions/snapshots.ts'
import { Sights } from '../../../broker/sessions/sights.ts'
import { setTopology } from '../../../broker/records/topology-record.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import type { MemberStatus, NotImported } from '../../../model/member-status.ts'
import { recordKeyText } from '../../../model/records.ts'
import { decodeRecordEvent } from '../../../protocol/codec/records-codec.ts'
import type { MemberRow } from '../../../broker/store/rows.ts'
import type { RecordEvent } from '../../../protocol/broker-api.ts'
import { anExport, facts } from '../support/harness.ts'

const NAMESPACES = ['blue', 'shop']
const NAMES = ['a', 'b']

const finding = fc.record({
  reason: fc.constant('NamespaceMissing' as const),
  namespace: fc.constantFrom(...NAMESPACES),
  name: fc.constantFrom('', ...NAMES),
  cluster: fc.constantFrom('', '', 'paris', 'tokyo'),
})

const step = fc.record({
  what: fc.constantFrom('export', 'export', 'restrict', 'withdraw', 'status', 'read'),
  owner: fc.constantFrom('milano', 'paris', 'tokyo', 'tokyo'),
  namespace: fc.constantFrom(...NAMESPACES),
  name: fc.constantFrom(...NAMES),
  findings: fc.array(finding, { maxLength: 4 }),
})

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
const SPOKES = { mode: 'hub-and-spoke' as const, hubs: ['milano'] }

t.test('a spoke', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const log = openMemoryLog()
      await log.transact((tx) => {
        for (const id of ['milano', 'paris', 'tokyo']) tx.put('member', id, ROW)
        setTopology(tx, { topology: SPOKES }, 1)
      })
      const views = new Views(log)
      const sights = new Sights(log, new FakeClock(), () => undefined)
      const batches = new LiveBatches(log, { encoded: { inc: () => undefined } }, views.index)
      const view = views.take(undefined, sights.of('tokyo'))
      let [at, statusAt] = [0, 0]
      let seen: MemberStatus | undefined
      /** Places of which tokyo may know that a member that it sees exports something for all. */
      const learned = new Set<string>()
      const read = (): void => {
        views.index.follow()
        for (let batch = batches.after(at, view, 'tokyo'); batch !== undefined;) {
          for (const event of batch.plain.t === 'batch' ? batch.plain.events : []) take(decodeRecordEvent(event))
          at = batch.revision
          batch = batches.after(at, view, 'tokyo')
        }
      }
      const take = (event: RecordEvent | undefined): void => {
        if (event?.t !== 'put' || event.record.body.kind !== 'MemberStatus') return
        // As a replica does it.
        if (event.record.revision <= statusAt) return
        statusAt = event.record.revision
        seen = event.record.body
        for (const one of seen.notImported)
          if (!isLearned(one)) throw new Error(`${JSON.stringify(one)} was sent to a spoke`)
      }
      const isLearned = ({ cluster, namespace, name }: NotImported): boolean =>
        cluster === '' ? learned.has(`${namespace}/${name}`) : cluster !== 'paris'
      for (const { what, owner, namespace, name, findings } of steps) {
        const key = `${owner}/ServiceExport/${namespace}/${name}`
        if (what === 'export' || what === 'restrict') {
          const readers = what === 'restrict' ? { readers: ['paris'] } : {}
          if (owner !== 'paris' && what === 'export') learned.add(`${namespace}/${name}`).add(`${namespace}/`)
          await log.transact((tx) => tx.put('record', key, { createdAtMs: 1, body: anExport(name).body, ...readers }))
        } else if (what === 'withdraw') await log.transact((tx) => tx.remove('record', key))
        else if (what === 'status') {
          const body = { kind: 'MemberStatus' as const, notImported: findings, leftOut: 0 }
          await log.transact((tx) => tx.put('record', 'milano/MemberStatus//milano', { createdAtMs: 1, body }))
        } else read()
      }
      read()
      const last = log.get('record', 'milano/MemberStatus//milano')?.body
      const said = last?.kind === 'MemberStatus' ? last.notImported : []
      const texts = (seen?.notImported ?? []).map((one) => JSON.stringify(one))
      const own = log.list('record', 'tokyo')
      for (const one of said) {
        if (one.cluster === 'paris') continue
        const about = own.filter(({ key }) => {
          const [, kind, namespace, name] = key.split('/')
          return kind === 'ServiceExport' && namespace === one.namespace && (one.name === '' || one.name === name)
        })
        // A name that others must not learn is counted.
        const isKnown = texts.includes(JSON.stringify(one)) || (seen?.leftOut ?? 0) > 0
        if (about.length > 0 && !isKnown) throw new Error(`${JSON.stringify(one)} was not sent: ${texts.join()}`)
        const isForAll = about.some(({ value }) => value.readers === undefined)
        if (isForAll && !texts.includes(JSON.stringify(one))) throw new Error(`${JSON.stringify(one)} was not sent`)
      }
      sights.close()
    }),
    { numRuns: 300 },
  )
})

t.test(
  'the snapshot of a spoke is made of the records of those that it sees, and others are not looked at',
  async (t) => {
    const log = openMemoryLog()
    await log.transact((tx) => {
      setTopology(tx, { topology: SPOKES }, 1)
      for (const id of ['milano', 'tokyo', ...Array.from({ length: 200 }, (_, i) => `c${i}`)]) {
        tx.put('member', id, ROW)
        for (const namespace of ['blue', 'shop'])
          tx.put('record', `${id}/ServiceExport/${namespace}/a`, { createdAtMs: 1, body: anExport('a').body })
      }
    })
    let rows = 0
    const counted = new Proxy(log, {
      get: (of, name) => {
        if (name === 'row') rows += 1
        const value: unknown = Reflect.get(of, name, of)
        return typeof value === 'function' ? (value as () => unknown).bind(of) : value
      },
    })
    const clock = new FakeClock()
    const views = new Views(log)
    const sights = new Sights(log, clock, () => undefined)
    const batches = new LiveBatches(log, { encoded: { inc: () => undefined } }, views.index)
    const encode = batches.encode.bind(batches)
    const snapshots = new Snapshots({ log: counted, clock, encode, views })
    for (const interest of [undefined, new Set(['shop'])]) {
      rows = 0
      const taken = snapshots.take({ packed: false, view: views.take(interest, sights.of('tokyo')), member: 'tokyo' })
      const keys: string[] = []
      for (let part = await taken.part(0); part !== undefined; part = await taken.part(0)) {
        for (const event of part.message.t === 'batch' ? part.message.events : []) {
          const found = decodeRecordEvent(event)
          if (found?.t === 'put') keys.push(recordKeyText(found.record.key))
        }
      }
      const spaces = interest === undefined ? ['blue', 'shop'] : ['shop']
      const want = ['milano', 'tokyo'].flatMap((id) => spaces.map((one) => `${id}/ServiceExport/${one}/a`))
      t.same(keys.sort(), ['/Topology//topology', ...want].sort())
      t.ok(rows <= 10, `${rows} rows read`)
    }
    sights.close()
  },
)
