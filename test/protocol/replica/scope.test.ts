/** A copy of the records of some namespaces. test/broker/watch/interest.test.ts shows how a broker treats it. */
import t from 'tap'
import type { ClusterId } from '../../../model/ids.ts'
import type { RecordEvent, WatchMessage } from '../../../protocol/broker-api.ts'
import { encodeRecordEvent } from '../../../protocol/codec/records-codec.ts'
import * as wire from '../../../protocol/gen/broker.ts'
import { decodeReplica, encodeReplica } from '../../../protocol/replica/replica-file.ts'
import { Replica, ReplicaError } from '../../../protocol/replica/record-replica.ts'
import { slice } from '../samples.ts'

const reset = (epoch: string): WatchMessage => ({ t: 'reset', epoch, resumed: false })
const batch = (revision: number, ...events: RecordEvent[]): WatchMessage => ({
  t: 'batch',
  events: events.map(encodeRecordEvent),
  revision,
})
const put = (cluster: string, name: string, revision: number): RecordEvent => ({
  t: 'put',
  record: {
    key: { cluster: cluster as ClusterId, kind: 'EndpointSlice', namespace: 'shop', name },
    revision,
    createdAtMs: revision,
    body: slice(name, `10.0.0.${revision % 250}`).body,
  },
})
const synced = (revision: number, complete: string[]): WatchMessage => ({
  t: 'synced',
  revision,
  complete,
  departed: [],
})

t.test('a copy of some namespaces on disk: an agent of an earlier release asks for everything', (t) => {
  const replica = new Replica()
  replica.setInterest(new Set(['shop', 'void']))
  t.same(replica.begin(), { interest: { namespaces: new Set(['shop', 'void']), missing: new Set() } })
  replica.apply({ t: 'reset', epoch: 'e1', resumed: false, keepsToInterest: true })
  replica.apply({ t: 'exportedNamespaces', whole: true, added: ['blue', 'shop'], removed: [] })
  replica.apply(batch(3, put('milano', 'web', 3)))
  replica.apply(synced(3, ['milano']))
  const bytes = encodeReplica(replica)
  const saved = wire.SavedReplica.decode(bytes.subarray(bytes.indexOf(10) + 1 + 32))
  t.match(saved, { epoch: '', revision: 0, scope: { epoch: 'e1', revision: 3 } })
  t.equal(saved.records.length, 1)
  const loaded = decodeReplica(bytes)
  t.same([...(loaded.scope ?? [])], ['shop', 'void'])
  t.same([...(loaded.exported ?? [])], ['blue', 'shop'])
  t.same(loaded.begin(), {}, 'who asks for everything, and has a part, starts anew')
  loaded.setInterest(new Set(['red', 'shop']))
  const interest = { namespaces: new Set(['red', 'shop']), missing: new Set(['red']) }
  t.same(loaded.begin(), { resume: { epoch: 'e1', revision: 3 }, interest })
  t.end()
})

t.test('a hostile broker adds to what is no part, and exports without end', (t) => {
  const added: WatchMessage = { t: 'added', events: [encodeRecordEvent(put('milano', 'web', 3))] }
  const replica = new Replica()
  replica.setInterest(new Set(['shop']))
  t.throws(() => replica.apply(added), ReplicaError, 'before the first reset')
  replica.begin()
  replica.apply({ t: 'reset', epoch: 'e1', resumed: false, keepsToInterest: true })
  t.throws(() => replica.apply(added), ReplicaError, 'into a snapshot')
  replica.begin()
  replica.apply(reset('e1'))
  replica.apply(synced(1, []))
  t.throws(() => replica.apply(added), ReplicaError, 'to everything')
  const asksForAll = new Replica()
  asksForAll.begin()
  const keeps: WatchMessage = { t: 'reset', epoch: 'e1', resumed: false, keepsToInterest: true }
  t.throws(() => asksForAll.apply(keeps), ReplicaError, 'it keeps to what nobody asked for')
  for (let part = 0; part < 15; part += 1) {
    const names = Array.from({ length: 10_000 }, (_, i) => `n${part}-${i}`)
    asksForAll.apply({ t: 'exportedNamespaces', whole: false, added: names, removed: [] })
  }
  t.equal(asksForAll.exported?.size, 100_000)
  t.end()
})
