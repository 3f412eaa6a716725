import fc from 'fast-check'
import { readFile, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import type { ClusterId } from '../../../model/ids.ts'
import { type RecordKey, type StoredRecord, recordKeyText } from '../../../model/records.ts'
import type { RecordEvent, WatchMessage } from '../../../protocol/broker-api.ts'
import { canonicalJson } from '../../../protocol/codec/content-hash.ts'
import { encodeRecordEvent } from '../../../protocol/codec/records-codec.ts'
import { decodeReplica, encodeReplica, replicaFile } from '../../../protocol/replica/replica-file.ts'
import { Replica, ReplicaError } from '../../../protocol/replica/record-replica.ts'
import { splitBatch } from '../../../protocol/codec/messages-codec.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { slice } from '../samples.ts'

function key(cluster: string, name: string): RecordKey {
  return { cluster: cluster as ClusterId, kind: 'EndpointSlice', namespace: 'shop', name }
}

function stored(cluster: string, name: string, revision: number): StoredRecord {
  return {
    key: key(cluster, name),
    revision,
    createdAtMs: revision,
    body: slice(name, `10.0.0.${revision % 250}`).body,
  }
}

const reset = (epoch: string, resumed = false): WatchMessage => ({ t: 'reset', epoch, resumed })
const batch = (revision: number, ...events: RecordEvent[]): WatchMessage => ({
  t: 'batch',
  events: events.map(encodeRecordEvent),
  revision,
})
const put = (cluster: string, name: string, revision: number): RecordEvent => ({
  t: 'put',
  record: stored(cluster, name, revision),
})
const remove = (cluster: string, name: string, revision: number): RecordEvent => ({
  t: 'remove',
  key: key(cluster, name),
  revision,
})
const synced = (revision: number, complete: string[], departed: string[] = []): WatchMessage => ({
  t: 'synced',
  revision,
  complete,
  departed,
})

/** The records as `milano/web@3`, sorted; `?` marks those that are unconfirmed. */
function shown(replica: Replica): string {
  return [...replica.records]
    .map(
      ([text, { key: k, revision }]) => `${k.cluster}/${k.name}@${revision}${replica.unconfirmed.has(text) ? '?' : ''}`,
    )
    .sort()
    .join(' ')
}

t.test('stories', (t) => {
  const stories: { say: string; steps: [WatchMessage | 'begin', string][] }[] = [
    {
      say: 'a snapshot shows only when it is whole',
      steps: [
        [reset('e1'), ''],
        [batch(1, put('milano', 'web', 1)), ''],
        [batch(2, put('paris', 'web', 2)), ''],
        [synced(2, ['milano', 'paris']), 'milano/web@1 paris/web@2'],
        [batch(3, put('milano', 'db', 3)), 'milano/db@3 milano/web@1 paris/web@2'],
        [batch(4, remove('paris', 'web', 4)), 'milano/db@3 milano/web@1'],
      ],
    },
    {
      say: 'a snapshot that breaks off changes nothing',
      steps: [
        [reset('e1'), ''],
        [batch(2, put('milano', 'web', 1), put('milano', 'db', 2)), ''],
        [synced(2, ['milano']), 'milano/db@2 milano/web@1'],
        ['begin', 'milano/db@2 milano/web@1'],
        [reset('e2'), 'milano/db@2 milano/web@1'],
        [batch(1, put('milano', 'web', 1)), 'milano/db@2 milano/web@1'],
        ['begin', 'milano/db@2 milano/web@1'],
      ],
    },
    {
      say: 'a broker that lost everything removes nothing until the owners have spoken',
      steps: [
        [reset('e1'), ''],
        [batch(3, put('milano', 'web', 1), put('paris', 'web', 2), put('tokyo', 'web', 3)), ''],
        [synced(3, ['milano', 'paris', 'tokyo']), 'milano/web@1 paris/web@2 tokyo/web@3'],
        ['begin', 'milano/web@1 paris/web@2 tokyo/web@3'],
        [reset('e2'), 'milano/web@1 paris/web@2 tokyo/web@3'],
        [synced(0, []), 'milano/web@1? paris/web@2? tokyo/web@3?'],
        [batch(1, put('milano', 'api', 1)), 'milano/api@1 milano/web@1? paris/web@2? tokyo/web@3?'],
        [synced(1, ['milano']), 'milano/api@1 paris/web@2? tokyo/web@3?'],
        [batch(2, put('paris', 'web', 2)), 'milano/api@1 paris/web@2 tokyo/web@3?'],
        [synced(2, ['milano', 'paris'], ['tokyo']), 'milano/api@1 paris/web@2'],
      ],
    },
    {
      say: 'within an epoch a new snapshot drops what complete owners no longer have',
      steps: [
        [reset('e1'), ''],
        [batch(2, put('milano', 'web', 1), put('paris', 'web', 2)), ''],
        [synced(2, ['milano', 'paris']), 'milano/web@1 paris/web@2'],
        ['begin', 'milano/web@1 paris/web@2'],
        [reset('e1'), 'milano/web@1 paris/web@2'],
        [batch(9, put('milano', 'web', 1)), 'milano/web@1 paris/web@2'],
        [synced(9, ['milano', 'paris']), 'milano/web@1'],
      ],
    },
    {
      say: 'resumed: only the difference, at once',
      steps: [
        [reset('e1'), ''],
        [batch(1, put('milano', 'web', 1)), ''],
        [synced(1, ['milano']), 'milano/web@1'],
        ['begin', 'milano/web@1'],
        [reset('e1', true), 'milano/web@1'],
        [batch(3, put('milano', 'db', 3), remove('milano', 'web', 2)), 'milano/db@3'],
        [batch(3, put('milano', 'db', 3)), 'milano/db@3'],
        [synced(3, ['milano']), 'milano/db@3'],
      ],
    },
    {
      say: 'a removal during a snapshot counts whoever the owner is',
      steps: [
        [reset('e1'), ''],
        [batch(1, put('milano', 'web', 1)), ''],
        [synced(1, ['milano']), 'milano/web@1'],
        ['begin', 'milano/web@1'],
        [reset('e2'), 'milano/web@1'],
        [batch(5, remove('milano', 'web', 5)), 'milano/web@1'],
        [synced(5, []), ''],
      ],
    },
  ]
  for (const { say, steps } of stories) {
    const replica = new Replica()
    steps.forEach(([message, want], i) => {
      if (message === 'begin') replica.begin()
      else replica.apply(message)
      t.equal(shown(replica), want, `${say}, step ${i + 1}`)
      t.equal(shown(decodeReplica(encodeReplica(replica))), want, 'and after a restart')
    })
  }
  t.end()
})

t.test('a broker that lacks the topology does not undo it, and a status may say more at the same revision', (t) => {
  const topology: StoredRecord = {
    key: { cluster: '', kind: 'Topology', namespace: '', name: 'topology' },
    ...{ revision: 1, createdAtMs: 1 },
    body: { kind: 'Topology', number: 1, topology: { mode: 'hub-and-spoke', hubs: ['milano'] } },
  }
  const status = (leftOut: number): StoredRecord => ({
    key: { cluster: 'milano' as ClusterId, kind: 'MemberStatus', namespace: '', name: 'milano' },
    ...{ revision: 2, createdAtMs: 1 },
    body: { kind: 'MemberStatus', notImported: [], leftOut },
  })
  const replica = new Replica()
  replica.apply(reset('e1'))
  replica.apply(batch(2, { t: 'put', record: topology }, { t: 'put', record: status(1) }))
  replica.apply(synced(2, ['', 'milano']))
  replica.begin()
  replica.apply(reset('e1'))
  replica.apply(batch(3, { t: 'put', record: status(2) }))
  t.same(
    replica.apply(synced(3, ['', 'milano'])).map(({ record }) => record.body),
    [status(2).body],
  )
  t.match(replica.records.get('/Topology//topology')?.body, topology.body)
  t.equal(replica.unconfirmed.size, 0)
  replica.begin()
  replica.apply(reset('e2'))
  replica.apply(synced(4, ['milano']))
  t.match(replica.records.get('/Topology//topology')?.body, topology.body, 'a store that may not have all yet')
  replica.begin()
  replica.apply(reset('e2'))
  replica.apply(synced(4, ['', 'milano']))
  t.equal(replica.records.size, 0, 'another store has another topology')
  t.end()
})

t.test('changes tell the whole difference, and unchanged records stay the same object', (t) => {
  const replica = new Replica()
  replica.apply(reset('e1'))
  replica.apply(batch(2, put('milano', 'web', 1), put('milano', 'db', 2)))
  t.same(
    replica.apply(synced(2, ['milano'])).map((c) => [c.t, c.record.key.name]),
    [
      ['put', 'web'],
      ['put', 'db'],
    ],
  )
  const web = replica.records.get(recordKeyText(key('milano', 'web')))
  replica.begin()
  replica.apply(reset('e1'))
  replica.apply(batch(3, put('milano', 'web', 1), put('milano', 'api', 3)))
  t.same(
    replica.apply(synced(3, ['milano'])).map((c) => [c.t, c.record.key.name]),
    [
      ['put', 'api'],
      ['removed', 'db'],
    ],
  )
  t.equal(replica.records.get(recordKeyText(key('milano', 'web'))), web)
  t.end()
})

t.test('contradictions are refused', (t) => {
  const cases: [WatchMessage[], string][] = [
    [[reset('e1', true)], 'watch: epoch "e1" cannot be resumed: the last one seen is ""'],
    [[batch(1)], 'watch: received a batch before the first reset'],
    [[synced(1, [])], 'watch: received "synced" before the first reset'],
    [[reset('e1'), batch(5), batch(4)], 'watch: received revision 4 after 5'],
    [[reset('e1'), batch(5), synced(4, [])], 'watch: received "synced" of revision 4 after 5'],
  ]
  for (const [messages, message] of cases) {
    const replica = new Replica()
    t.throws(() => messages.forEach((m) => replica.apply(m)), new ReplicaError(message.slice('watch: '.length)))
  }
  t.end()
})

t.test('a record that cannot be read does not hide the others', (t) => {
  const replica = new Replica()
  const errors: string[] = []
  replica.apply(reset('e1'))
  const good = batch(1, put('milano', 'web', 1)) as WatchMessage & { t: 'batch' }
  replica.apply({ ...good, events: [Buffer.from([0x0a, 0xff]), ...good.events] }, (error) => errors.push(error.message))
  replica.apply(synced(1, ['milano']))
  t.equal(shown(replica), 'milano/web@1')
  t.equal(errors.length, 1)
  t.end()
})

/** A broker's log, and a reader that is cut off and resumed at random. */
const owners = ['', 'milano', 'paris']
const names = ['a', 'b', 'c', 'd']
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      t: fc.constant('put' as const),
      owner: fc.constantFrom(...owners),
      name: fc.constantFrom(...names),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      t: fc.constant('remove' as const),
      owner: fc.constantFrom(...owners),
      name: fc.constantFrom(...names),
    }),
  },
  { weight: 3, arbitrary: fc.record({ t: fc.constant('deliver' as const), events: fc.integer({ min: 1, max: 5 }) }) },
  { weight: 2, arbitrary: fc.constant({ t: 'reconnect' as const }) },
  { weight: 1, arbitrary: fc.constant({ t: 'compact' as const }) },
  { weight: 1, arbitrary: fc.constant({ t: 'restart' as const }) },
)

t.test('whatever the interruptions, the copy ends up as the broker has it', (t) => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const world = new Map<string, StoredRecord>()
      const log: RecordEvent[] = []
      let revision = 0
      let compacted = 0
      let replica = new Replica()
      let queue: RecordEvent[] = []
      let at = 0
      const connect = (): void => {
        const { resume } = replica.begin()
        const resumed = resume !== undefined && resume.revision >= compacted
        replica.apply(reset('e1', resumed))
        at = resumed ? resume.revision : 0
        queue = resumed
          ? log.filter((event) => revisionOf(event) > at)
          : [...world.values()]
              .map((record): RecordEvent => ({ t: 'put', record }))
              .sort((a, b) => revisionOf(a) - revisionOf(b))
      }
      const deliver = (count: number): void => {
        const events = queue.splice(0, count)
        if (events.length > 0) at = Math.max(at, ...events.map(revisionOf))
        if (queue.length === 0) at = revision
        // The parts of a batch carry the revision before it.
        for (const part of splitBatch(batch(at, ...events), replica.revision)) {
          if (part.t === 'batch' && events.length > 0) replica.apply(part)
        }
        if (queue.length === 0) replica.apply(synced(at, owners))
      }
      const change = (event: RecordEvent): void => {
        log.push(event)
        queue.push(event)
      }
      connect()
      for (const s of steps) {
        if (s.t === 'put') {
          revision += 1
          const record = stored(s.owner, s.name, revision)
          world.set(recordKeyText(record.key), record)
          change({ t: 'put', record })
        } else if (s.t === 'remove') {
          if (!world.delete(recordKeyText(key(s.owner, s.name)))) continue
          revision += 1
          change({ t: 'remove', key: key(s.owner, s.name), revision })
        } else if (s.t === 'deliver') deliver(s.events)
        else if (s.t === 'compact') compacted = revision
        else {
          if (s.t === 'restart' && replica.synced) replica = decodeReplica(encodeReplica(replica))
          else if (s.t === 'restart') replica = new Replica()
          connect()
        }
      }
      deliver(Infinity)
      const want = canonicalJson([...world.values()].sort((a, b) => a.revision - b.revision))
      const got = canonicalJson([...replica.records.values()].sort((a, b) => a.revision - b.revision))
      return got === want && replica.unconfirmed.size === 0
    }),
    { numRuns: 2000 },
  )
  t.end()
})

function revisionOf(event: RecordEvent): number {
  return event.t === 'put' ? event.record.revision : event.revision
}

t.test('a record that is not shown stays: nothing vanishes that was not removed, completed or departed', (t) => {
  const message = fc.oneof(
    fc.constantFrom('e1', 'e2').map((epoch) => reset(epoch)),
    fc
      .record({ owner: fc.constantFrom(...owners), name: fc.constantFrom(...names) })
      .map(({ owner, name }) => ({ owner, name })),
    fc.subarray(owners).map((complete) => ({ complete })),
  )
  fc.assert(
    fc.property(fc.array(message, { maxLength: 40 }), (messages) => {
      const replica = new Replica()
      let revision = 0
      replica.apply(reset('e0'))
      for (const m of messages) {
        const before = new Set(replica.records.keys())
        if ('t' in m) {
          replica.begin()
          revision = 0
          replica.apply(m)
        } else if ('owner' in m) {
          revision += 1
          replica.apply(batch(revision, put(m.owner, m.name, revision)))
        } else {
          replica.apply(synced(revision, m.complete))
          for (const text of before) {
            if (!replica.records.has(text) && !m.complete.includes(text.split('/')[0] ?? '')) return false
          }
          continue
        }
        for (const text of before) if (!replica.records.has(text)) return false
      }
      return true
    }),
    { numRuns: 2000 },
  )
  t.end()
})

t.test('the file', async (t) => {
  const folder = temporaryFolder(t)
  const path = join(folder, 'state', 'replica')
  const store = replicaFile(path)
  t.equal((await store.load()).synced, false, 'nothing saved yet')
  await store.save(new Replica())
  t.equal((await store.load()).synced, false, 'an empty replica is not saved: it would claim a snapshot')
  const replica = new Replica()
  replica.apply(reset('e1'))
  replica.apply(batch(1, put('milano', 'web', 1)))
  replica.apply(synced(1, ['milano'], ['paris']))
  await store.save(replica)
  const back = await store.load()
  t.equal(shown(back), 'milano/web@1')
  t.same(back.begin(), { resume: { epoch: 'e1', revision: 1 } })
  t.same([...back.complete, ...back.departed], ['milano', 'paris'])
  t.same(await readdir(join(folder, 'state')), ['replica'], 'no temporary file is left')
  const bytes = await readFile(path)
  await writeFile(path, bytes.subarray(0, -3))
  await t.rejects(store.load(), {
    name: 'CodecError',
    message: 'replica: its checksum is wrong: it is truncated or damaged',
  })
  await writeFile(path, 'hello')
  await t.rejects(store.load(), { name: 'CodecError', message: 'replica: not a replica file of this version' })
})
