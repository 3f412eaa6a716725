/**
 * A move begins elsewhere while a broker serves the store. With a database, only a process that bypasses the lock can
 * begin one.
 */
import { join } from 'node:path'
import t from 'tap'
import { openSqliteLog } from '../../../broker/store/sqlite/sqlite-log.ts'
import { MIGRATION_KEY } from '../../../broker/store/rows.ts'
import { LoopbackBroker } from '../../cli/loopback-broker.ts'
import { failure } from '../../support/failure.ts'

t.test('it ends, and says where the store goes', async (t) => {
  const broker = await LoopbackBroker.start(t)
  const log = openSqliteLog({ file: join(broker.state, 'broker.db'), create: false })
  const ended = failure(broker.ended())
  await log.transact((tx) => tx.put('migration', MIGRATION_KEY, { t: 'leaving', id: 'x', peer: 'sqlite:/b', atMs: 1 }))
  await log.close()
  t.match(await ended, { code: 'HalfMoved', message: /a move from here to sqlite:\/b began at 1970-01-01T00:00:00Z/ })
  t.match(await failure(broker.start()), { code: 'HalfMoved' }, 'and does not start again')
})
