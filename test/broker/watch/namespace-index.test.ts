import fc from 'fast-check'
import t from 'tap'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { type ExportedMessage, NamespaceIndex } from '../../../broker/sessions/exported-namespaces.ts'
import { parseRecordKey } from '../../../broker/store/rows.ts'
import { aSlice, anExport } from '../support/harness.ts'

function heard(names: ReadonlySet<string>, messages: readonly ExportedMessage[]): Set<string> {
  const after = new Set(names)
  for (const { whole, added, removed } of messages) {
    if (whole) after.clear()
    for (const name of removed) after.delete(name)
    for (const name of added) after.add(name)
  }
  return after
}

const step = fc.record({
  t: fc.constantFrom('export', 'export', 'slice', 'withdraw', 'withdraw', 'look', 'forget', 'restart'),
  namespace: fc.constantFrom('blue', 'green', 'red'),
  name: fc.constantFrom('a', 'b', 'a'),
  listener: fc.nat(2),
})

t.test('three listeners, each hearing at its own times, know where something is exported', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), fc.nat(20), async (steps, late) => {
      const log = openMemoryLog({ keepRemoved: 3 })
      const create = (): NamespaceIndex => new NamespaceIndex(log)
      let index: NamespaceIndex | undefined
      const listeners = [0, 1, 2].map(() => ({ names: new Set<string>(), at: undefined as number | undefined }))
      const look = (listener: (typeof listeners)[number] | undefined): void => {
        if (index === undefined || listener === undefined) return
        listener.names = heard(listener.names, index.exportedSince(listener.at))
        listener.at = log.revision
      }
      for (const [i, { t: what, namespace, name, listener }] of steps.entries()) {
        if (i === late) index = create()
        const key = `milano/${what === 'slice' ? 'EndpointSlice' : 'ServiceExport'}/${namespace}/${name}`
        if (what === 'export' || what === 'slice') {
          const { body } = what === 'slice' ? aSlice('a', '10.42.0.1') : anExport('a')
          await log.transact((tx) => tx.put('record', key, { createdAtMs: 1, body }))
        } else if (what === 'withdraw') await log.transact((tx) => tx.remove('record', key))
        else if (what === 'look') look(listeners[listener])
        // The broker restarts, and the members come back with what they know.
        else if (what === 'restart' && index !== undefined) index = create()
        else if (what === 'forget') {
          for (let n = 0; n < 5; n += 1) {
            const gone = `milano/EndpointSlice/x/${n}`
            await log.transact((tx) => tx.put('record', gone, { createdAtMs: 1, body: aSlice('a', '10.42.0.1').body }))
            await log.transact((tx) => tx.remove('record', gone))
          }
        }
      }
      index ??= create()
      const keys = log.list('record').map(({ key }) => key)
      const exports = keys.map(parseRecordKey).filter(({ kind }) => kind === 'ServiceExport')
      const want = [...new Set(exports.map(({ namespace }) => namespace))].sort()
      for (const listener of listeners) {
        look(listener)
        if ([...listener.names].sort().join() !== want.join())
          throw new Error(`${[...listener.names].join()} instead of ${want.join()}`)
      }
      const blue = keys.filter((key) => key.split('/')[2] === 'blue')
      const ofBlue = index.keys(index.namesOf(new Set(['blue', 'none']), true))
      if (ofBlue.sort().join() !== blue.sort().join()) throw new Error('keys')
      if (index.keys(index.namesOf(undefined, false)).sort().join() !== keys.sort().join()) throw new Error('all keys')
    }),
    { numRuns: 1000 },
  )
  t.pass('all of them')
})

t.test('what is offered to some members only is in the list of these members alone', async (t) => {
  const log = openMemoryLog()
  const index = new NamespaceIndex(log)
  const put = (namespace: string, readers?: readonly string[]): Promise<unknown> =>
    log.transact((tx) => {
      const value = { createdAtMs: 1, body: anExport('a').body, ...(readers === undefined ? {} : { readers }) }
      tx.put('record', `milano/ServiceExport/${namespace}/a`, value)
    })
  await put('open')
  await put('secret', ['paris'])
  const followed = (member: string) => {
    const state = { at: undefined as number | undefined, own: undefined as ReadonlySet<string> | undefined }
    let names: ReadonlySet<string> = new Set()
    return () => {
      names = heard(names, index.exportedFor(member, state))
      return [...names].sort().join()
    }
  }
  const [milano, paris, tokyo] = [followed('milano'), followed('paris'), followed('tokyo')]
  t.same([milano(), paris(), tokyo()], ['open,secret', 'open,secret', 'open'])
  await put('open', ['tokyo'])
  t.same([milano(), paris(), tokyo()], ['open,secret', 'secret', 'open'])
  await put('secret')
  t.same([milano(), paris(), tokyo()], ['open,secret', 'secret', 'open,secret'])
  t.same(index.exportedSince(undefined), [{ t: 'exportedNamespaces', whole: true, added: ['secret'], removed: [] }])
  t.ok(index.isPublic({ cluster: 'milano', namespace: 'secret', name: 'a' }))
  t.notOk(index.isPublic({ cluster: 'milano', namespace: 'open', name: 'a' }))
  t.notOk(index.isPublic({ cluster: '', namespace: 'open', name: '' }))
})

t.test('a broker that has begun anew tells those who come back what has changed since', async (t) => {
  const log = openMemoryLog()
  const value = { createdAtMs: 1, body: anExport('a').body }
  const put = (namespace: string): Promise<unknown> =>
    log.transact((tx) => tx.put('record', `milano/ServiceExport/${namespace}/a`, value))
  for (const namespace of ['blue', 'green', 'red']) await put(namespace)
  const since = log.revision
  await log.transact((tx) => tx.remove('record', 'milano/ServiceExport/blue/a'))
  await put('void')
  const index = new NamespaceIndex(log)
  const want = { t: 'exportedNamespaces', whole: false, added: ['void'], removed: ['blue'] }
  t.same(index.exportedSince(since), [want])
  t.equal(index.exportedSince(since)[0], index.exportedSince(since)[0], 'one object for all')
  t.same(index.exportedSince(log.revision), [])
  await put('green')
  t.same(index.exportedSince(log.revision - 1), [], 'one more in a namespace is no news')
})

t.test('another owner in a namespace that has exports wakes those alone who see it, and not all others', async (t) => {
  const log = openMemoryLog()
  const put = (owner: string, namespace: string) =>
    log.transact((tx) => {
      tx.put('record', `${owner}/ServiceExport/${namespace}/a`, { createdAtMs: 1, body: anExport('a').body })
    })
  await put('milano', 'shop')
  const index = new NamespaceIndex(log)
  const sees = (owner: string): boolean => owner !== 'paris'
  const sight = { id: 's', member: 'tokyo', sees, shows: () => true, owners: () => new Set(['milano', 'tokyo']) }
  const reported = { at: undefined as number | undefined, own: undefined as ReadonlySet<string> | undefined }
  t.match(index.exportedForSight('tokyo', sight, reported), [{ whole: true, added: ['shop'] }])
  let { revision } = log
  await put('paris', 'shop')
  t.notOk(index.follow(), 'whoever sees everything is told nothing new')
  t.equal(index.turnedSince(revision, sight)?.size, 0, 'nor is who does not see it')
  t.same(index.exportedForSight('tokyo', sight, reported), [])
  await put('paris', 'blue')
  t.ok(index.follow(), 'a namespace that had none')
  t.same(index.exportedForSight('tokyo', sight, reported), [], 'which is none for it')
  ;({ revision } = log)
  await put('tokyo', 'blue')
  t.notOk(index.follow())
  t.same([...(index.turnedSince(revision, sight) ?? [])], ['blue'])
  t.match(index.exportedForSight('tokyo', sight, reported), [{ whole: false, added: ['blue'], removed: [] }])
  await log.transact((tx) => tx.remove('record', 'milano/ServiceExport/shop/a'))
  t.match(index.exportedForSight('tokyo', sight, reported), [{ added: [], removed: ['shop'] }])
  for (let i = 0; i < 9000; i += 1) await put('paris', `n${i}`)
  index.follow()
  t.equal(index.turnedSince(revision, sight), undefined, 'too long ago')
  t.same(index.exportedForSight('tokyo', sight, reported), [])
})
