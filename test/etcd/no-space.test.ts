/**
 * When etcd runs out of space, it refuses writes with the reason and still serves reads. Writes work again once there
 * is space.
 */
import t from 'tap'
import type { EtcdLog } from '../../broker/store/etcd/etcd-log.ts'
import { row } from '../compliance/record-log.ts'
import { eventually } from '../support/eventually.ts'
import { failure } from '../support/failure.ts'
import { silentProxy } from '../support/silent-proxy.ts'
import { type EtcdCluster, base64, startEtcdCluster } from './support/etcd-cluster.ts'
import { openReplica } from './support/open-replica.ts'

const QUOTA = 8 * 1024 * 1024
const put = (log: EtcdLog, key: string): Promise<void> =>
  log.transact((tx) => tx.put('record', `a/K/n/${key}`, row('1')))

t.test('an alarm for space', async (t) => {
  const cluster = await startEtcdCluster(t, { quotaBytes: QUOTA })
  const proxies = await Promise.all(cluster.members.map(({ port }) => silentProxy(t, { host: '127.0.0.1', port })))
  const init = { prefix: '/full', limits: { callTimeoutMs: 2000 }, timing: { findOutMs: 4000 } }
  const { log, store } = await openReplica(t, cluster, { ...init, ports: proxies.map(({ port }) => port) })
  const { log: other } = await openReplica(t, cluster, init)
  await put(log, 'before')

  // The answer to a write is lost, and etcd runs out of space before the replica can look up the result.
  const proxy = proxies.find(({ port }) => store.client.endpoint.endsWith(`:${port}`))!
  proxy.loseAnswers()
  const lost = put(log, 'lost')
  await eventually(() => other.get('record', 'a/K/n/lost') !== undefined, { say: 'the write at the other replica' })
  await fill(cluster)
  proxy.cut()
  await lost
  t.pass('found by reading alone')

  const error = await failure(put(log, 'refused'))
  t.match(error, { code: 'Full' })
  t.match(
    error.message,
    /^etcd at .*: write of 1 rows: .*database space exceeded: the broker accepts no changes until etcd has space: /,
  )
  await log.refresh()
  t.equal(await log.transact((tx) => tx.count('record')), 2, 'decisions without a write are made')

  await free(cluster)
  await put(log, 'after')
  await other.refresh()
  t.same(other.list('record'), log.list('record'))
  t.equal(log.get('record', 'a/K/n/refused'), undefined)
  t.equal(other.revision, 3)
})

async function fill(cluster: EtcdCluster): Promise<void> {
  const value = base64('x'.repeat(512 * 1024))
  for (let i = 0; i < 100; i += 1) {
    try {
      await cluster.call('kv/put', { key: base64(`junk/${i}`), value })
    } catch (error) {
      if (String(error).includes('space exceeded')) return
      throw error
    }
  }
  throw new Error('etcd took more than its quota')
}

async function free(cluster: EtcdCluster): Promise<void> {
  await cluster.call('kv/deleterange', { key: base64('junk/'), range_end: base64('junk0') })
  const { header } = (await cluster.call('kv/range', { key: base64('none') })) as { header: { revision: string } }
  await cluster.call('kv/compaction', { revision: header.revision, physical: true })
  for (const member of cluster.members) await cluster.call('maintenance/defragment', {}, member)
  const { alarms = [] } = (await cluster.call('maintenance/alarm', { action: 'GET' })) as {
    alarms?: { memberID: string; alarm: string }[]
  }
  for (const { memberID, alarm } of alarms) {
    await cluster.call('maintenance/alarm', { action: 'DEACTIVATE', memberID, alarm })
  }
}
