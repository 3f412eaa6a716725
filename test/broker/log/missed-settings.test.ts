/** What a replica of etcd writes back of the settings: only what it has read with all writes before it (design rule 13). */
import t from 'tap'
import { OperatorWords } from '../../../broker/members/members.ts'
import type { Listing } from '../../../broker/store/etcd/etcd-reader.ts'
import { ReplicaState, type ReplicaStateInit } from '../../../broker/store/etcd/etcd-replica.ts'
import { LogState } from '../../../broker/store/log-state.ts'
import type { Change, RecordLog, Transaction } from '../../../broker/store/record-log.ts'
import { SETTINGS_KEY, type SettingsRow } from '../../../broker/store/rows.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'

type Said = SettingsRow['accessDefault']

function settings(revision: number, accessDefault: Said): Change {
  const value = accessDefault === undefined ? {} : { accessDefault }
  return { scope: 'settings', key: SETTINGS_KEY, value, revision } as Change
}

function seen(revision: number, accessDefault: Said): Listing {
  const head = { revision, compacted: 0, writes: [] }
  return {
    ...{ seen: { head, value: Buffer.alloc(0), revision }, changes: [settings(revision, accessDefault)] },
    ...{ whole: true, asOf: revision, leftovers: [] },
  }
}

/** A replica that has read the settings, and what it writes back. */
function replica(first: Said) {
  const rows = new LogState()
  const written: Said[] = []
  const write = (_scope: string, _key: string, value: SettingsRow) => written.push(value.accessDefault)
  const log = {
    get: rows.get.bind(rows),
    transact: (decide: (tx: Transaction) => void) => {
      decide({ get: rows.get.bind(rows), put: write } as unknown as Transaction)
      return Promise.resolve()
    },
  } as unknown as RecordLog
  const listening: { words?: OperatorWords } = {}
  const init: Pick<ReplicaStateInit, 'onChanges' | 'onHead' | 'replica'> = {
    replica: 'a',
    onChanges: (changes, from) => listening.words?.take(changes, from),
    onHead: () => undefined,
  }
  const state = new ReplicaState(init as ReplicaStateInit, rows, seen(1, first))
  const words = new OperatorWords({ log, clock: new FakeClock(), logger: new CapturingLogger() })
  listening.words = words
  return { state, words, written }
}

t.test('a write that leaves the default out is answered with the default before it', async (t) => {
  const { state, words, written } = replica('deny')
  state.take(seen(2, undefined))
  t.same(written, ['deny'])
  t.equal(words.accessDefault, 'deny')
})

t.test('after writes that were missed, an older default is not brought back', async (t) => {
  const { state, words, written } = replica('deny')
  // Revision 2 has set another default, and revision 3 has left it out: only the last one is listed.
  state.takeListing(seen(3, undefined))
  t.same(written, [], 'who has seen revision 2 writes it back')
  t.equal(words.accessDefault, 'deny', 'members hear nothing else meanwhile')
  state.take(seen(4, 'allow'))
  t.equal(words.accessDefault, 'allow')
  t.same(written, [])
  state.take(seen(5, undefined))
  t.same(written, ['allow'], 'and from then on it is known again')
})
