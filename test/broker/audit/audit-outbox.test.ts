/**
 * Audit events that wait in the store. When there are too many, the oldest event is dropped, and keeping an event stays
 * cheap.
 */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { AuditInit } from '../../../broker/store/audit-event.ts'
import { MAX_WAITING, keepEvent, removeEvents, waitingEvents } from '../../../broker/audit/audit-outbox.ts'
import type { RecordLog, Transaction } from '../../../broker/store/record-log.ts'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

function opened(t: Test): RecordLog {
  const log = openSqliteLog({ file: join(temporaryFolder(t), 'broker.db') })
  t.teardown(() => log.close())
  return log
}

function act(subject: string): AuditInit {
  return { act: 'cluster.evict', result: 'ok', who: { kind: 'operator', uid: 0 }, subject }
}

/** Keeps the events one after the other, one millisecond apart. */
async function keepEach(log: RecordLog, from: number, to: number): Promise<void> {
  await log.transact((tx) => {
    for (let i = from; i < to; i += 1) keepEvent(tx, act(`act-${i}`), i)
  })
}

const subjects = (log: RecordLog): (string | undefined)[] => waitingEvents(log).map(({ row }) => row.event.subject)
const range = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, i) => `act-${from + i}`)

t.test('the oldest makes way, however many there are', async (t) => {
  const log = opened(t)
  for (const to of [MAX_WAITING, MAX_WAITING + 1, MAX_WAITING + 300, 3 * MAX_WAITING + 7]) {
    const had = waitingEvents(log).at(-1)?.row.event.atMs ?? -1
    await keepEach(log, had + 1, to)
    t.same(subjects(log), range(to - MAX_WAITING, to), `${to} acts`)
  }
})

t.test('a transaction that is thrown away, and another store meanwhile', async (t) => {
  const log = opened(t)
  const other = opened(t)
  await keepEach(log, 0, MAX_WAITING + 5)
  await keepEach(other, 0, MAX_WAITING + 5)
  const refused = log.transact((tx) => {
    keepEvent(tx, act('no'), MAX_WAITING + 5)
    throw new Error('no')
  })
  await t.rejects(refused)
  await keepEach(log, MAX_WAITING + 5, MAX_WAITING + 6)
  await keepEach(other, MAX_WAITING + 5, MAX_WAITING + 6)
  for (const one of [log, other]) t.same(subjects(one), range(6, MAX_WAITING + 6))
})

t.test('a place that is free is taken, wherever it is', async (t) => {
  const log = opened(t)
  await keepEach(log, 0, MAX_WAITING)
  const rows = waitingEvents(log).map(({ key, row }) => ({ key, id: row.event.id }))
  const gone = [3, 500, 999].flatMap((i) => rows[i] ?? [])
  await log.transact((tx) => removeEvents(tx, gone))
  await keepEach(log, MAX_WAITING, MAX_WAITING + 3)
  t.equal(log.count('audit'), MAX_WAITING)
  t.same(subjects(log).slice(-3), range(MAX_WAITING, MAX_WAITING + 3))
  t.ok(waitingEvents(log).every(({ row }) => row.lost === undefined))
})

function counting() {
  const cost = { gets: 0, lists: 0 }
  const counted = (tx: Transaction): Transaction => ({
    store: tx.store,
    get: (scope, key) => ((cost.gets += 1), tx.get(scope, key)),
    list: (scope, group) => ((cost.lists += 1), tx.list(scope, group)),
    count: (scope, group) => tx.count(scope, group),
    recordBytes: (group) => tx.recordBytes(group),
    recordCount: (group, kind) => tx.recordCount(group, kind),
    put: (scope, key, value) => tx.put(scope, key, value),
    remove: (scope, key) => tx.remove(scope, key),
  })
  return { cost, counted }
}

const costs: readonly (readonly [say: string, there: number])[] = [
  ['empty', 0],
  ['half full', MAX_WAITING / 2],
  ['full', MAX_WAITING + 1],
]
for (const [say, there] of costs) {
  t.test(`to keep one costs little where the store is ${say}`, async (t) => {
    const log = opened(t)
    await keepEach(log, 0, there)
    const { cost, counted } = counting()
    for (let i = 0; i < 200; i += 1) await log.transact((tx) => keepEvent(counted(tx), act('x'), there + i))
    t.ok(cost.gets <= 400, `${cost.gets} reads of 200 acts`)
    t.equal(cost.lists, 0)
  })
}

t.test('two full stores of one process do not slow each other down', async (t) => {
  const logs = [opened(t), opened(t)]
  for (const log of logs) await keepEach(log, 0, MAX_WAITING + 1)
  const { cost, counted } = counting()
  for (let i = 1; i <= 50; i += 1)
    for (const log of logs) await log.transact((tx) => keepEvent(counted(tx), act('x'), MAX_WAITING + i))
  t.ok(cost.gets <= 200, `${cost.gets} reads of 100 acts`)
  t.equal(cost.lists, 0)
})
