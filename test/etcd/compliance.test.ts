/** The broker's log on a real etcd passes the suite that the logs on SQLite and in memory pass. */
import t from 'tap'
import { recordLogCompliance } from '../compliance/record-log.ts'
import { startEtcdCluster } from './support/etcd-cluster.ts'
import { openReplica } from './support/open-replica.ts'

t.test('compliance, with client certificates and a password', async (t) => {
  const cluster = await startEtcdCluster(t)
  await cluster.enableLogin('broker', 'not-for-argv', '/sealane')
  const login = { user: 'broker', password: 'not-for-argv' }
  let n = 0
  await t.test('the suite', async (t) => {
    recordLogCompliance(t, {
      runs: 10,
      open: async (init) => (await openReplica(t, cluster, { prefix: `/sealane/${(n += 1)}`, login, ...init })).log,
    })
  })
})
