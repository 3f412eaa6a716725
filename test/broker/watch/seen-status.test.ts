/** Whatever is exported and reported, and when: a spoke reads what a hub says of its services, and nothing of others. */
import fc from 'fast-check'
import t from 'tap'
import { Views } from '../../../broker/sessions/filter.ts'
import { LiveBatches } from '../../../broker/sessions/live-batches.ts'
import { Sights } from '../../../broker/sessions/sights.ts'
import { setTopology } from '../../../broker/records/topology-record.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { type MemberStatus, type NotImported } from '../../../model/member-status.ts'
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
