/** Which data of a broker's store moves to a real etcd of three members and back, and which data stays behind. */
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openAuthorityStore } from '../support/broker-store.ts'
import { migrateStore } from '../../broker/recovery/migration.ts'
import { openPlace } from '../../broker/recovery/open-location.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { row } from '../compliance/record-log.ts'
import { LoopbackBroker } from '../cli/loopback-broker.ts'
import { eventually } from '../support/eventually.ts'
import { startEtcdCluster } from './support/etcd-cluster.ts'
import { etcdLogin } from './support/etcd-login.ts'
import { openReplica } from './support/open-replica.ts'

t.setTimeout(180_000)

const clock = new SystemClock()
const { signal } = new AbortController()
const IN_TIME = { deadlineMs: 30_000 }

t.test('what lies below the same prefix and is of somebody else stays', async (t) => {
  const { cluster, broker, move, url } = await stage(t)
  await broker.stop()
  await move('sqlite', url)
  await move(url, 'sqlite')
  const { log: neighbour } = await openReplica(t, cluster, { prefix: '/sealane/moved/inner' })
  for (let i = 0; i < 3; i += 1) await neighbour.transact((tx) => tx.put('record', `a/K/n/${i}`, row('1')))
  t.match(await move('sqlite', url), { repeated: false }, 'over what was there')
  await neighbour.transact((tx) => tx.put('record', 'a/K/n/late', row('1')))
  const { log: again } = await openReplica(t, cluster, { prefix: '/sealane/moved/inner', create: false })
  t.equal(again.count('record'), 4)
  t.match(await move(url, 'sqlite'), { repeated: false })
})

t.test('in the middle of a rotation: both keys of the certificate authority come along, there and back', async (t) => {
  const { broker, move, login, url } = await stage(t)
  const { state } = broker
  const authorities = await openAuthorityStore(state, clock)
  const { current, next } = await authorities.rotate({ force: false })
  await authorities.close()
  const keys = (): string[] =>
    readdirSync(state)
      .filter((name) => name.startsWith('ca.'))
      .sort()
  const both = [`ca.${next?.fingerprint}.crt`, `ca.${next?.fingerprint}.key`, 'ca.crt', 'ca.key']
  const dropKeys = (): void => keys().forEach((name) => rmSync(join(state, name)))
  await broker.stop()
  t.strictSame(keys(), both.sort())

  await move('sqlite', url)
  dropKeys()
  await broker.start({ store: { ...login, url } })
  await eventually(() => keys().join() === both.join(), { ...IN_TIME, say: 'both from etcd' })
  await broker.stop()
  dropKeys()
  await move(url, 'sqlite')
  t.strictSame(keys(), both, 'and back')
  await broker.start()
  const after = await openAuthorityStore(state, clock)
  const { phase, current: now } = await after.status()
  t.ok(phase === 'announced' || phase === 'switched', phase)
  t.equal(now.fingerprint, current.fingerprint)
  await after.close()
})

/** Starts a broker on a database, and an etcd beside it. */
async function stage(t: Test) {
  const cluster = await startEtcdCluster(t)
  const login = etcdLogin(t, cluster)
  const hosts = cluster.members.map(({ port }) => `127.0.0.1:${port}`).join(',')
  const url = `etcd://${hosts}/sealane/moved`
  const broker = await LoopbackBroker.start(t)
  const move = (from: string, to: string) => {
    const place = (text: string) => openPlace(text, { flag: '--from', stateDir: broker.state, login, clock, signal })
    const deps = { clock, who: { kind: 'operator' } as const, signal }
    return migrateStore(deps, { from: place(from), to: place(to), force: false })
  }
  return { cluster, broker, move, login, url }
}
