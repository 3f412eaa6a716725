/** Replicas publish facts about themselves under leases of etcd. */
import { randomUUID } from 'node:crypto'
import t, { type Test } from 'tap'
import { ReplicaSession } from '../../broker/store/etcd/replica-session.ts'
import type { EtcdStore } from '../../broker/store/etcd/etcd-store.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { eventually } from '../support/eventually.ts'
import { type EtcdCluster, base64, startEtcdCluster } from './support/etcd-cluster.ts'
import { connect } from './support/open-replica.ts'

/** A replica that stops releases its session well before its lease of 15 s expires. */
const AT_ONCE = { deadlineMs: 8000 }

let cluster: EtcdCluster

t.before(async () => {
  cluster = await startEtcdCluster(t)
})

interface Running {
  readonly session: ReplicaSession
  readonly store: EtcdStore
  readonly id: string
  /** How often this replica has become the first one. */
  readonly became: () => number
  readonly stop: () => Promise<void>
}

function start(t: Test, prefix: string): Running {
  const { store } = connect(t, cluster, { prefix })
  const id = randomUUID()
  let became = 0
  const onFirst = (): void => void (became += 1)
  const logger = new CapturingLogger()
  const session = new ReplicaSession({ store, id, clock: new SystemClock(), logger, onFirst })
  const ended = new AbortController()
  const running = session.run(ended.signal)
  const stop = async (): Promise<void> => {
    ended.abort(new Error('stopped'))
    await running
  }
  t.teardown(stop)
  return { session, store, id, stop, became: () => became }
}

t.test('each knows of the others, one is the first, and who stops is gone at once', async (t) => {
  const all = [0, 1, 2].map(() => start(t, '/session/1'))
  const [a, b] = all as [Running, Running]
  a.session.report(['milano', 'napoli'])
  await eventually(() => all.every(({ session }) => session.replicas.length === 3), { say: 'three at each' })
  await eventually(() => b.session.isConnectedElsewhere('milano'), { say: 'a member of the other' })
  t.notOk(a.session.isConnectedElsewhere('milano'), 'not at another one')
  t.equal(all.filter(({ session }) => session.isFirst()).length, 1)
  const [first] = all.filter(({ session }) => session.isFirst())
  // The ids are random, so a replica that started early may have been the first one before.
  const others = all.filter((one) => one !== first).map((one) => ({ ...one, before: one.became() }))
  a.session.report(['napoli'])
  await eventually(() => !b.session.isConnectedElsewhere('milano'), { say: 'it has gone' })
  await a.stop()
  await eventually(() => b.session.replicas.length === 2, { ...AT_ONCE, say: 'two' })
  t.notOk(b.session.isConnectedElsewhere('napoli'))
  await first?.stop()
  await eventually(() => others.some(({ session, became, before }) => session.isFirst() && became() === before + 1), {
    ...AT_ONCE,
    say: 'another',
  })
})

t.test('a lease that is lost is granted anew', async (t) => {
  const { session, store, id } = start(t, '/session/2')
  session.report(['milano'])
  await eventually(() => session.replicas.length === 1, { say: 'the session' })
  const key = base64(store.keys.replica(id).toString())
  const { kvs } = (await cluster.call('kv/range', { key })) as { kvs: { lease: string }[] }
  await cluster.call('lease/revoke', { ID: kvs[0]!.lease })
  await eventually(() => session.replicas.length === 0, { ...AT_ONCE, say: 'it is seen to be lost' })
  await eventually(() => session.replicas.length === 1, { say: 'and there again', deadlineMs: 15_000 })
})

t.test('stopped at any moment, it ends', async (t) => {
  for (let i = 0; i < 10; i += 1) {
    const { stop, store } = start(t, '/session/3')
    for (let turns = 0; turns < i * 3; turns += 1) await new Promise((resolve) => setImmediate(resolve))
    if (i % 2 === 0) store.client.turnAway()
    await stop()
  }
  t.pass('ten times')
})

t.test('a replica of an earlier release is known before members are served', async (t) => {
  const { store } = connect(t, cluster, { prefix: '/session/offers' })
  const put = (value: string) =>
    store.client.put(store.keys.replica('earlier'), Buffer.from(value), {
      action: 'a test',
      signal: AbortSignal.timeout(8000),
    })
  await put('{"members":[],"version":"0.0.9"}')
  let changes = 0
  const session = new ReplicaSession({
    ...{ store, id: 'later', clock: new SystemClock(), logger: new CapturingLogger() },
    says: { keepsToOffers: true },
    onOffers: () => void (changes += 1),
  })
  t.notOk(session.keepToOffers(), 'not known yet')
  const ended = new AbortController()
  const running = session.run(ended.signal)
  t.teardown(() => (ended.abort(new Error('stopped')), running))
  await session.whenListed(AbortSignal.timeout(8000))
  t.same([session.keepToOffers(), changes], [false, 0], 'it would give records to all')
  await put('{"members":[],"keepsToOffers":true}')
  t.equal(session.withoutTopology().length, 1, 'it ignores the topology')
  await eventually(() => session.keepToOffers(), { ...AT_ONCE, say: 'it has been upgraded' })
  t.equal(changes, 1)
  await put('{"members":[]}')
  await eventually(() => !session.keepToOffers() && changes === 2, { ...AT_ONCE, say: 'and rolled back' })
})
