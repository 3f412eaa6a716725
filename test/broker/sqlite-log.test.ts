import { chmodSync, closeSync, mkdirSync, openSync, statSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import t from 'tap'
import { openSqliteLog } from '../../broker/store/sqlite/sqlite-log.ts'
import { recordLogCompliance, row } from '../compliance/record-log.ts'
import { failure, messageOf } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.test('compliance', async (t) => {
  const path = temporaryFolder(t)
  let n = 0
  recordLogCompliance(t, { runs: 10, open: (init) => openSqliteLog({ file: join(path, `${(n += 1)}.db`), ...init }) })
})

t.test('a reopened log has the same rows, revisions, removals and epoch', async (t) => {
  const file = join(temporaryFolder(t), 'broker.db')
  const first = openSqliteLog({ file })
  await first.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
  await first.transact((tx) => tx.put('record', 'a/K/n/y', row('2')))
  await first.transact((tx) => tx.remove('record', 'a/K/n/x'))
  await first.close()
  const second = openSqliteLog({ file })
  t.teardown(() => second.close())
  t.equal(second.epoch, first.epoch)
  t.equal(second.revision, 3)
  t.same(
    second.recordsAfter(0, 9).map((change) => [change.key, change.revision, change.value]),
    [
      ['a/K/n/y', 2, row('2')],
      ['a/K/n/x', 3, undefined],
    ],
  )
  t.equal(statSync(file).mode & 0o777, 0o600)
})

t.test('two processes on one file see each other', async (t) => {
  const file = join(temporaryFolder(t), 'broker.db')
  const broker = openSqliteLog({ file, keepRemoved: 2 })
  const command = openSqliteLog({ file, keepRemoved: 2 })
  t.teardown(() => Promise.all([broker.close(), command.close()]))
  await broker.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
  t.equal(await command.transact((tx) => tx.count('record')), 1)
  const reported: string[] = []
  broker.onCommit((changes) => reported.push(...changes.map((change) => change.key)))
  await command.transact((tx) => tx.put('record', 'a/K/n/y', row('2')))
  await broker.refresh()
  t.same(reported, ['a/K/n/y'])
  t.equal(broker.revision, 2)

  // A log that falls behind the compaction reads everything again.
  for (let i = 0; i < 5; i += 1) {
    await command.transact((tx) => tx.put('record', `a/K/n/${i}`, row('1')))
    await command.transact((tx) => tx.remove('record', `a/K/n/${i}`))
  }
  await command.transact((tx) => tx.remove('record', 'a/K/n/x'))
  await broker.refresh()
  t.same(
    broker.list('record').map((one) => one.key),
    ['a/K/n/y'],
  )
  t.equal(broker.revision, command.revision)
  t.equal(broker.compactedRevision, command.compactedRevision)
})

t.test('a folder that may not be looked into: not that nothing is there', async (t) => {
  const closed = join(temporaryFolder(t), 'closed')
  mkdirSync(closed, { mode: 0 })
  const file = join(closed, 'broker.db')
  const open = (): Promise<unknown> => Promise.resolve().then(() => openSqliteLog({ file, create: false }))
  const root = process.geteuid?.() === 0
  // No folder is closed to root, so the test drops its privileges.
  if (root) process.seteuid?.('nobody')
  const refused = await failure(open()).finally(() => {
    if (root) process.seteuid?.(0)
    chmodSync(closed, 0o700)
  })
  t.match(refused, { code: 'Unwritable' })
  t.equal(refused.message, `${file}: not permitted: run this command as the broker's user`)
  t.match(await failure(open()), { code: 'Absent' })
})

t.test('a file that cannot be used is named', async (t) => {
  const path = temporaryFolder(t)
  const rows: { name: string; prepare: (file: string) => void; message: string; code: string }[] = [
    {
      name: 'not a database',
      prepare: (file) => writeFileSync(file, 'x'.repeat(8192)),
      code: 'Damaged',
      message:
        'FILE is damaged (file is not a database): restore it from a backup, or move it away to start empty (members then publish again)',
    },
    {
      name: 'damaged pages',
      prepare: (file) => {
        const database = new DatabaseSync(file)
        database.exec('PRAGMA application_id = 1397506642; PRAGMA user_version = 1')
        database.exec('CREATE TABLE entry (a TEXT); CREATE INDEX i ON entry (a)')
        for (let i = 0; i < 500; i += 1) database.prepare('INSERT INTO entry VALUES (?)').run(`${'y'.repeat(100)}${i}`)
        const pages = Number(database.prepare('PRAGMA page_count').get()?.['page_count'])
        database.close()
        t.ok(pages > 4)
        damage(file, 4096, pages)
      },
      code: 'Damaged',
      message:
        'FILE is damaged (Tree 2 page 31: btreeInitPage() returns error code 11): restore it from a backup, or move it away to start empty (members then publish again)',
    },
    {
      name: 'another program',
      prepare: (file) => {
        const database = new DatabaseSync(file)
        database.exec('CREATE TABLE a (b TEXT)')
        database.close()
      },
      code: 'Foreign',
      message: 'FILE is not a Sealane broker database: choose another state directory',
    },
    {
      name: 'a newer version',
      prepare: (file) => {
        void openSqliteLog({ file }).close()
        const database = new DatabaseSync(file)
        database.exec('PRAGMA user_version = 9')
        database.close()
      },
      code: 'TooNew',
      message: 'FILE has schema version 9, this broker knows up to 1: use the newer version of Sealane',
    },
    {
      name: 'a directory',
      prepare: (file) => mkdirSync(file),
      code: 'Unwritable',
      message: 'FILE cannot be written (unable to open database file): check the directory and its permissions',
    },
  ]
  for (const [i, one] of rows.entries()) {
    const file = join(path, `${i}.db`)
    one.prepare(file)
    const error = await failure(() => openSqliteLog({ file }))
    t.equal(error.message.replaceAll(file, 'FILE'), one.message, one.name)
    t.match(error, { code: one.code, file }, one.name)
  }
  t.equal(
    await messageOf(() => openSqliteLog({ file: join(path, 'none.db'), create: false })),
    `no broker state in ${join(path, 'none.db')}: start the broker once first`,
  )
})

t.test('locked by another process: refused after the wait, and nothing is lost', async (t) => {
  const file = join(temporaryFolder(t), 'broker.db')
  const log = openSqliteLog({ file })
  t.teardown(() => log.close())
  const other = new DatabaseSync(file)
  other.exec('BEGIN IMMEDIATE')
  const write = log.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
  const error = await failure(write)
  t.match(error, { code: 'Locked' })
  t.equal(error.message, `${file} is locked by another process (database is locked): stop it or wait`)
  other.exec('ROLLBACK')
  other.close()
  await log.transact((tx) => tx.put('record', 'a/K/n/x', row('1')))
  t.equal(log.revision, 1)
})

/** Overwrites everything from the third page on. */
function damage(file: string, pageSize: number, pages: number): void {
  const bytes = Buffer.alloc(pageSize * (pages - 2), 0xff)
  const handle = openSync(file, 'r+')
  writeSync(handle, bytes, 0, bytes.length, 2 * pageSize)
  closeSync(handle)
}
