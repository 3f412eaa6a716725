import { statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { connectEtcd } from '../../../broker/store/etcd/connect-etcd.ts'
import {
  checkOwnDatabase,
  checkStoreRemembered,
  readStoreConfig,
  rememberStore,
} from '../../../broker/store/state-directory.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { failure, messageOf } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const deps = { clock: new SystemClock(), logger: new CapturingLogger() }

t.test('commands beside the broker find its store', async (t) => {
  const state = temporaryFolder(t)
  t.equal(await readStoreConfig(state), undefined)
  await checkStoreRemembered(state, undefined)
  await checkOwnDatabase(state)
  const config = { url: 'etcd://broker@h1,h2/p', caFile: '/c/ca.crt', passwordFile: '/c/password' }
  await rememberStore(state, config)
  const file = join(state, 'store.json')
  t.equal(statSync(file).mode & 0o777, 0o600)
  t.same(await readStoreConfig(state), config)
  await checkStoreRemembered(state, config)
  t.equal(
    await messageOf(checkStoreRemembered(state, undefined)),
    `${state} belongs to a broker whose store is etcd://broker@h1,h2/p: expected --store etcd://broker@h1,h2/p`,
  )
  t.match(await failure(checkOwnDatabase(state)), { code: 'Foreign' })
  writeFileSync(file, '{}')
  t.equal(
    await messageOf(readStoreConfig(state)),
    `${file} is damaged: start the broker with --store, which replaces it`,
  )
})

t.test('files and flags that do not fit are named', async (t) => {
  const folder = temporaryFolder(t)
  const missing = join(folder, 'none')
  const password = join(folder, 'password')
  writeFileSync(password, 'secret\n')
  const url = 'etcd://u@h/p'
  const rows = [
    [{ url: 'etcd://h/p', certificateFile: missing }, '--etcd-cert and --etcd-key: expected both, or none'],
    [{ url }, '--store names user "u": expected the file with its password, --etcd-password-file'],
    [
      { url: 'etcd://h/p', passwordFile: password },
      '--etcd-password-file: expected a user in --store, as in etcd://USER@HOST:PORT/PREFIX',
    ],
    [
      { url, passwordFile: missing },
      `${missing} cannot be read (ENOENT: no such file or directory, stat '${missing}')`,
    ],
  ] as const
  for (const [config, message] of rows) t.equal(await messageOf(() => connectEtcd(deps, config)), message)
  const store = connectEtcd(deps, { url, passwordFile: password })
  t.equal(store.where, 'etcd://h:2379/p', 'without the user')
  store.client.close()
})
