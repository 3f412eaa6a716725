import fc from 'fast-check'
import t from 'tap'
import {
  MAX_CLUSTERSETS,
  clustersetConfig,
  clustersetDir,
  clustersetRows,
  createClusterset,
  noteOpened,
  removeClusterset,
  servedClustersets,
} from '../../../broker/store/clusterset-rows.ts'
import { DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { parseEtcdUrl } from '../../../broker/store/etcd/etcd-url.ts'
import { SETTINGS_KEY } from '../../../broker/store/rows.ts'
import { isDnsLabel } from '../../../model/ids.ts'
import { failure } from '../../support/failure.ts'

const RANGES = { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' }
const OTHER = { globalRange: '243.0.0.0/8', clustersetIpRange: '245.0.0.0/16' }

async function start() {
  const log = openMemoryLog()
  await log.transact((tx) => tx.put('settings', SETTINGS_KEY, { clusterset: 'demo', ...RANGES, advertise: [] }))
  const create = (name: string, ranges = RANGES, nowMs = 1) =>
    log.transact((tx) => createClusterset(tx, { name, ...ranges }, nowMs))
  const remove = (name: string) => log.transact((tx) => removeClusterset(tx, name, 9))
  const served = (): string =>
    servedClustersets(log)
      .map(({ name }) => name)
      .join()
  return { log, create, remove, served }
}

t.test('made, made again, removed, and taken up as it was', async (t) => {
  const { log, create, remove, served } = await start()
  for (const name of ['blue', 'green', 'red']) t.equal(await create(name), true)
  t.equal(await create('blue', RANGES, 5), false)
  await log.transact((tx) => noteOpened(tx, 'blue', 2))
  await log.transact((tx) => noteOpened(tx, 'blue', 3))
  await log.transact((tx) => noteOpened(tx, 'nobody', 3))
  t.equal(await remove('blue'), true)
  t.equal(await remove('blue'), false)
  t.equal(served(), 'green,red')
  t.match(await failure(create('blue', OTHER)), { reason: 'InvalidValue', field: 'globalRange' })
  t.equal(served(), 'green,red')
  t.equal(await create('blue', RANGES, 7), true)
  t.equal(served(), 'blue,green,red')
  t.same(log.get('clusterset', 'blue'), { createdAtMs: 1, openedAtMs: 2, ...RANGES }, 'its store is there already')
})

t.test('refused: with the field, the value and what was expected', async (t) => {
  const { create, remove, served } = await start()
  await create('blue')
  t.match(await failure(create('demo')), {
    field: 'clusterset',
    message: /"demo": expected a name other than that of the broker's own/,
  })
  t.match(await failure(remove('demo')), {
    field: 'clusterset',
    message: /"demo": expected a clusterset other than the broker's own/,
  })
  t.match(await failure(remove('bleu')), { reason: 'ClustersetUnknown', message: /"bleu": expected .*: demo, blue$/ })
  for (let i = 1; i < MAX_CLUSTERSETS; i += 1) await create(`c${i}`)
  t.match(await failure(create('one-more')), { reason: 'ClustersetLimit' })
  await remove('c1')
  t.match(await failure(create('one-more')), { reason: 'ClustersetLimit' }, 'removed ones count')
  t.equal(await create('c1'), true)
  t.equal(served().split(',').length, MAX_CLUSTERSETS)
})

t.test('no text that is not a label becomes a clusterset, or a path', async (t) => {
  const { log, create } = await start()
  const bad = [
    '',
    '.',
    '..',
    '../x',
    'a/b',
    'a.b',
    'A',
    'ü',
    'a b',
    'a\n',
    '\u0000',
    '-a',
    'a-',
    'x'.repeat(64),
    '\u202ea',
  ]
  for (const name of bad) t.match(await failure(create(name)), { reason: 'InvalidValue' }, JSON.stringify(name))
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 70 }), async (name) => {
      if (isDnsLabel(name)) return
      await failure(create(name))
    }),
  )
  t.same(clustersetRows(log), [])
  // A foreign program wrote these rows. The broker does not serve them and never uses a name as a path.
  await log.transact((tx) => tx.put('clusterset', '../../etc', { createdAtMs: 1, ...RANGES }))
  await log.transact((tx) => tx.put('clusterset', 'demo', { createdAtMs: 1, ...RANGES }))
  t.same(servedClustersets(log), [], "neither it, nor the broker's own a second time")
})

t.test('where each is', (t) => {
  const row = { name: 'blue', createdAtMs: 1, ...OTHER }
  const config = { ...DEFAULT_BROKER_CONFIG, stateDir: '/s', advertise: ['h:1'], authorityDir: '/ca' }
  t.match(clustersetConfig(config, row), {
    ...{ clusterset: 'blue', stateDir: '/s/clustersets/blue', authorityDir: '/ca/blue', store: undefined },
    ...{ ...OTHER, advertise: ['h:1'] },
  })
  t.equal(clustersetDir('/s', 'green'), '/s/clustersets/green')
  for (const [url, prefix] of [
    ['etcd://h', '/sealane/clustersets/blue'],
    ['etcd://u@h1:1,h2:2/', '/sealane/clustersets/blue'],
    ['etcd://u@h1:1,h2:2/a/b//', '/a/b/clustersets/blue'],
  ] as const) {
    const { store } = clustersetConfig({ ...config, store: { url, caFile: '/ca.crt' } }, row)
    const { endpoints, user } = parseEtcdUrl(url, 'url')
    t.match(parseEtcdUrl(store?.url ?? '', 'url'), { prefix, endpoints, ...(user === undefined ? {} : { user }) }, url)
    t.equal(store?.caFile, '/ca.crt')
  }
  const long = `etcd://h/${'p'.repeat(190)}`
  t.throws(() => clustersetConfig({ ...config, store: { url: long } }, row), /expected a prefix/)
  t.end()
})
