import fc from 'fast-check'
import t from 'tap'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { completeness } from '../../../broker/members/membership.ts'
import { MemberLists, listChange } from '../../../broker/sessions/member-lists.ts'
import type { MemberRow } from '../../../broker/store/rows.ts'
import { decodeWatchMessage, encodeWatchMessage } from '../../../protocol/codec/messages-codec.ts'
import { MAX_CLUSTERS } from '../../../protocol/limits.ts'
import { Replica } from '../../../protocol/replica/record-replica.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { facts } from '../support/harness.ts'

const ids = fc.uniqueArray(fc.constantFrom('', 'a', 'b', 'c', 'd', 'e'), { maxLength: 6 })

t.test('a copy that hears what has changed has what one has that hears the lists', (t) => {
  fc.assert(
    fc.property(fc.array(fc.tuple(ids, ids), { minLength: 1, maxLength: 8 }), (all) => {
      const [whole, changes] = [new Replica(), new Replica()]
      for (const one of [whole, changes]) one.apply({ t: 'reset', epoch: 'e', resumed: false })
      let before: (typeof all)[number] | undefined
      for (const [i, [complete, departed]] of all.entries()) {
        const revision = i + 1
        whole.apply({ t: 'synced', revision, complete, departed })
        if (before === undefined) changes.apply({ t: 'synced', revision, complete, departed })
        else {
          const [wasComplete, wasDeparted] = before
          changes.apply({
            t: 'ownersChanged',
            revision,
            complete: listChange(wasComplete, complete),
            departed: listChange(wasDeparted, departed),
          })
        }
        before = [complete, departed]
      }
      const sets = (one: Replica): string => [[...one.complete].sort(), [...one.departed].sort()].join('|')
      return sets(whole) === sets(changes) && whole.revision === changes.revision
    }),
  )
  t.end()
})

t.test('a change of owners before the first synced ends the stream', (t) => {
  const none = { added: [], removed: [] }
  const replica = new Replica()
  replica.apply({ t: 'reset', epoch: 'e', resumed: false })
  const change = { t: 'ownersChanged', revision: 1, complete: none, departed: none } as const
  t.throws(() => replica.apply(change), { name: 'ReplicaError' })
  t.throws(() => replica.apply({ t: 'packed', zstd: new Uint8Array() }), { name: 'ReplicaError' })
  t.end()
})

t.test('lists move when a membership does, and are told once in a second', async (t) => {
  const log = openMemoryLog()
  const clock = new FakeClock()
  let reported = 0
  const lists = new MemberLists(log, clock, () => void (reported += 1))
  const write = async (id: string, complete: boolean, lastSeenMs = 0): Promise<void> => {
    const row: MemberRow = {
      ...{ index: 1, facts: facts(), translated: false, blocks: {}, joinedAtMs: 0, certificates: [] },
      ...{ complete, lastSeenMs },
    }
    await log.transact((tx) => tx.put('member', id, row))
    lists.changed()
  }
  await write('a', true)
  t.equal(reported, 1, 'the first one at once')
  for (const id of ['b', 'c', 'd']) await write(id, true)
  t.equal(reported, 1)
  t.same(lists.current.complete, ['', 'a', 'b', 'c', 'd'], 'who comes now hears how it is now')
  t.same(lists.reported.complete, ['', 'a'])
  await clock.advance(1000)
  t.equal(reported, 2)
  t.equal(lists.reported, lists.current)
  const before = lists.current
  await write('a', true, 7)
  await clock.advance(5000)
  t.equal(lists.current, before, 'the same object: nothing in it has changed')
  t.equal(reported, 2)
})

t.test('of many departed members the latest are listed, no more than a watcher takes', async (t) => {
  const log = openMemoryLog()
  const row: MemberRow = {
    ...{ index: 1, facts: facts(), translated: false, blocks: {}, joinedAtMs: 0, certificates: [] },
    ...{ complete: false, lastSeenMs: 0, departure: 'left' },
  }
  await log.transact((tx) => {
    for (let i = 0; i <= MAX_CLUSTERS; i += 1) tx.put('member', `c${i}`, { ...row, departedAtMs: i })
  })
  const { complete, departed } = completeness(log)
  t.ok(decodeWatchMessage(encodeWatchMessage({ t: 'synced', revision: 1, complete, departed })))
  t.ok(departed.includes(`c${MAX_CLUSTERS}`))
  t.notOk(departed.includes('c0'))
})
