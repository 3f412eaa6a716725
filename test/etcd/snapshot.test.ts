/** After etcd was restored from a snapshot, no broker continues with revisions that were already given out. */
import { rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { MARK_FILE } from '../../broker/recovery/state-mark.ts'
import { aSlice, anExport } from '../broker/support/harness.ts'
import { TlsMember } from '../broker/support/tls-member.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { eventually } from '../support/eventually.ts'
import { messageOf } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type EtcdCluster, base64, startEtcdCluster } from './support/etcd-cluster.ts'

t.setTimeout(180_000)

const IN_TIME = { deadlineMs: 30_000 }
const PREFIX = '/sealane'

t.test('members that have seen more keep it, and come back with the numbers that they had', async (t) => {
  const cluster = await startEtcdCluster(t)
  const folder = temporaryFolder(t)
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text, { mode: 0o600 })
    return join(folder, name)
  }
  const { certificate, key } = cluster.client
  const hosts = cluster.members.map(({ port }) => `127.0.0.1:${port}`).join(',')
  const login = {
    caFile: file('ca', cluster.ca),
    certificateFile: file('certificate', certificate),
    keyFile: file('key', key),
  }
  const store = { ...login, url: `etcd://${hosts}${PREFIX}` }
  const broker = await LoopbackBroker.start(t, { store })
  const { state } = broker
  const milano = await TlsMember.join(t, state, 'milano')
  const paris = await TlsMember.join(t, state, 'paris')
  milano.publish(anExport('web'), aSlice('web', '10.42.1.7'))
  await eventually(paris.has('milano/ServiceExport/shop/web'), IN_TIME)
  await broker.token({ cluster: 'bergen' })
  await broker.stop()
  const snapshot = await keysOf(cluster)

  await broker.start({ store })
  const oslo = await TlsMember.join(t, state, 'oslo')
  oslo.publish(anExport('db'), aSlice('db', '10.42.2.7'))
  await eventually(paris.has('oslo/EndpointSlice/shop/db-1'), IN_TIME)
  const clusterOf = (id: string) => paris.replica.records.get(`${id}/Cluster//${id}`)?.body
  const before = clusterOf('oslo')
  const { epoch } = paris.replica
  await broker.stop()
  await putBack(cluster, snapshot)

  t.match(await messageOf(broker.start({ store })), /is older than the state that members have: it is older/)
  // A pod without a volume starts without the mark file.
  rmSync(join(state, MARK_FILE))
  const acceptEmptyAtMs = Date.now()
  await broker.start({ store, acceptEmptyAtMs })
  await eventually(() => paris.replica.epoch !== epoch && paris.replica.epoch !== '', IN_TIME)
  t.ok(paris.has('oslo/EndpointSlice/shop/db-1')(), 'what is not in the snapshot is not gone')
  milano.publish(anExport('web'), aSlice('web', '10.42.1.8'), anExport('mail'))
  await eventually(paris.has('milano/ServiceExport/shop/mail'), IN_TIME)
  oslo.publish(anExport('db'), aSlice('db', '10.42.2.7'), anExport('late'))
  await eventually(paris.has('oslo/ServiceExport/shop/late'), { ...IN_TIME, say: 'a member that it did not know' })
  t.strictSame(clusterOf('oslo'), before, 'its number and addresses')
  t.match(await broker.tokens((one) => one.list()), [{ state: 'revoked', cluster: 'bergen' }, {}, {}])

  const now = paris.replica.epoch
  for (let round = 0; round < 2; round += 1) {
    await broker.stop()
    rmSync(join(state, MARK_FILE), { force: true })
    await broker.start({ store, acceptEmptyAtMs })
    milano.publish(anExport('web'), anExport(`again-${round}`))
    await eventually(paris.has(`milano/ServiceExport/shop/again-${round}`), IN_TIME)
    t.equal(paris.replica.epoch, now, 'it is done once')
  }
})

interface Kept {
  readonly key: string
  readonly value: string
}

async function keysOf(cluster: EtcdCluster): Promise<readonly Kept[]> {
  const { kvs } = await cluster.call('kv/range', ALL)
  return (kvs as readonly Kept[]).map(({ key, value }) => ({ key, value }))
}

/**
 * Restores the values. The revisions of etcd itself keep growing, which does no harm, because brokers compare revisions
 * in the values.
 */
async function putBack(cluster: EtcdCluster, kept: readonly Kept[]): Promise<void> {
  await cluster.call('kv/deleterange', ALL)
  for (const one of kept) await cluster.call('kv/put', one)
}

const ALL = { key: base64(`${PREFIX}/`), range_end: base64(`${PREFIX}0`) }
