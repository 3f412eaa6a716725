/**
 * Members of etcd die, connections stall, and answers are lost: the log holds every acknowledged write, and nothing
 * else.
 */
import t, { type Test } from 'tap'
import type { EtcdLog } from '../../broker/store/etcd/etcd-log.ts'
import type { EtcdStore } from '../../broker/store/etcd/etcd-store.ts'
import { StateError } from '../../broker/store/record-log.ts'
import { row } from '../compliance/record-log.ts'
import { eventually } from '../support/eventually.ts'
import { failure } from '../support/failure.ts'
import { type SilentProxy, silentProxy } from '../support/silent-proxy.ts'
import { type EtcdCluster, base64, startEtcdCluster } from './support/etcd-cluster.ts'
import { type ReplicaInit, openReplica } from './support/open-replica.ts'

const QUICK = {
  limits: { connectTimeoutMs: 2000, callTimeoutMs: 2000 },
  timing: { reachMs: 3000, findOutMs: 6000, groupMs: 20_000, closeMs: 1000 },
}
const never = new AbortController().signal

let cluster: EtcdCluster
let n = 0
const prefix = (): string => `/faults/${(n += 1)}`

interface Behind {
  readonly log: EtcdLog
  readonly store: EtcdStore
  readonly proxies: readonly SilentProxy[]
  /** The proxy that the replica uses at the moment. */
  readonly used: () => SilentProxy
}

/** Opens a replica that reaches each member of etcd through a proxy. */
async function behindProxies(t: Test, init: ReplicaInit): Promise<Behind> {
  const proxies = await Promise.all(cluster.members.map(({ port }) => silentProxy(t, { host: '127.0.0.1', port })))
  const { log, store } = await openReplica(t, cluster, { ...QUICK, ...init, ports: proxies.map(({ port }) => port) })
  const used = (): SilentProxy => proxies.find(({ port }) => store.client.endpoint.endsWith(`:${port}`))!
  return { log, store, proxies, used }
}

const put = (log: EtcdLog, key: string): Promise<void> =>
  log.transact((tx) => tx.put('record', `a/K/n/${key}`, row('1')))
const has = (log: EtcdLog, key: string): boolean => log.get('record', `a/K/n/${key}`) !== undefined

t.before(async () => {
  cluster = await startEtcdCluster(t)
})

t.test('members are killed and come back, the leader among them: nothing acknowledged is lost', async (t) => {
  const at = prefix()
  const replicas = await Promise.all([0, 1, 2].map(() => openReplica(t, cluster, { ...QUICK, prefix: at })))
  const logs = replicas.map(({ log }) => log)
  const outcomes = new Map<string, 'made' | 'refused' | 'unknown'>()
  let isOver = false
  const writers = logs.map(async (log, who) => {
    for (let i = 0; !isOver; i += 1) {
      const key = `${who}-${i}`
      await put(log, key).then(
        () => outcomes.set(key, 'made'),
        (error: unknown) => {
          if (!(error instanceof StateError)) throw error
          outcomes.set(key, error.code === 'Unknown' ? 'unknown' : 'refused')
        },
      )
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  })
  const made = (): number => [...outcomes.values()].filter((one) => one === 'made').length
  const goesOn = async (say: string): Promise<void> => {
    const before = made()
    await eventually(() => made() > before + 20, { say, deadlineMs: 40_000 })
  }
  await goesOn('writes before')
  for (let round = 0; round < 2; round += 1) {
    const leader = await cluster.leader()
    await leader.program.kill()
    await goesOn('writes without the leader')
    leader.program.start()
    await cluster.healthy()
    const other = cluster.members[round]!
    await other.program.kill()
    await goesOn('writes without a member')
    other.program.start()
    await cluster.healthy()
  }
  await goesOn('writes after')
  isOver = true
  await Promise.all(writers)
  await Promise.all(logs.map((log) => log.refresh()))
  const { log: fresh } = await openReplica(t, cluster, { prefix: at })
  for (const [i, log] of [...logs, fresh].entries()) {
    const wrong = [...outcomes].filter(
      ([key, outcome]) => outcome !== 'unknown' && has(log, key) !== (outcome === 'made'),
    )
    t.same(wrong, [], `replica ${i}`)
    t.equal(log.revision, fresh.revision)
  }
})

t.test('a way that goes silent is left, and the write is made once', async (t) => {
  const at = prefix()
  const { log, used } = await behindProxies(t, { prefix: at })
  const { log: other } = await openReplica(t, cluster, { prefix: at })
  await put(log, 'before')
  used().silence(true)
  await put(log, 'after')
  t.equal(log.revision, 2)
  await put(other, 'foreign')
  await eventually(() => has(log, 'foreign'), { say: 'pushed again', deadlineMs: 15_000 })
  t.equal(log.revision, 3)
})

t.test('the answer to a write is lost: it is found out that it was made', async (t) => {
  const at = prefix()
  const { log, used } = await behindProxies(t, { prefix: at })
  const { log: other } = await openReplica(t, cluster, { prefix: at })
  await put(log, 'first')
  const reported: number[] = []
  log.onCommit((changes) => reported.push(...changes.map(({ revision }) => revision)))
  for (const [i, overtaken] of [false, true].entries()) {
    const proxy = used()
    proxy.loseAnswers()
    const write = put(log, `lost-${i}`)
    await eventually(() => has(other, `lost-${i}`), { say: 'the write at the other replica' })
    if (overtaken) await put(other, 'over it')
    proxy.cut()
    await write
    t.ok(has(log, `lost-${i}`))
  }
  await log.refresh()
  t.equal(log.revision, 4, 'none was made twice')
  t.same(reported, [2, 3, 4], 'each is told once')
})

t.test('nobody can be asked what became of a write: unknown, and later it is seen', async (t) => {
  const at = prefix()
  const { log, used, proxies } = await behindProxies(t, { prefix: at })
  const { log: other } = await openReplica(t, cluster, { prefix: at })
  await put(log, 'first')
  used().loseAnswers()
  const write = failure(put(log, 'lost'))
  await eventually(() => has(other, 'lost'), { say: 'the write at the other replica' })
  for (const proxy of proxies) proxy.silence(true)
  const error = await write
  t.match(error, { code: 'Unknown' })
  t.match(error.message, /^etcd at 127\.0\.0\.1:\d+: write of 1 rows: .*; the result of the write is unknown: etcd at /)
  const later = await failure(put(log, 'nobody hears'))
  t.match(later, { code: 'Unreachable' }, 'known not to be made')
  t.match(later.message, /^etcd at 127\.0\.0\.1:\d+: no connection: no handshake within 2000 ms; etcd at /)
  for (const proxy of proxies) proxy.listen()
  await put(log, 'again')
  t.ok(has(log, 'lost'))
  t.notOk(has(log, 'nobody hears'))
  await other.refresh()
  t.equal(other.revision, 3)
})

t.test('etcd forgets its history while a replica is away: it lists, and misses nothing', async (t) => {
  const at = prefix()
  const { log, proxies } = await behindProxies(t, { prefix: at })
  const { log: other } = await openReplica(t, cluster, { prefix: at })
  await put(log, 'kept')
  await put(log, 'removed')
  for (const proxy of proxies) proxy.silence(true)
  for (const proxy of proxies) proxy.cut()
  const reported: string[] = []
  log.onCommit((changes) =>
    reported.push(...changes.map(({ key, value }) => `${value === undefined ? '-' : '+'}${key}`)),
  )
  await other.transact((tx) => tx.remove('record', 'a/K/n/removed'))
  for (let i = 0; i < 20; i += 1) await put(other, 'new')
  await compact()
  for (const proxy of proxies) proxy.listen()
  await eventually(() => log.revision === other.revision, { say: 'all seen', deadlineMs: 20_000 })
  t.same(log.list('record'), other.list('record'))
  t.same(reported, ['-a/K/n/removed', '+a/K/n/new'])
  await put(other, 'pushed')
  await eventually(() => has(log, 'pushed'), { say: 'pushed after the list' })
})

t.test('writes of its own go on while a long list is read in pages', async (t) => {
  const at = prefix()
  const { log: other } = await openReplica(t, cluster, { prefix: at })
  await other.transact((tx) => {
    for (let i = 0; i < 3000; i += 1) tx.put('record', `a/K/n/${i}`, row('1'))
  })
  const { log, store } = await openReplica(t, cluster, { ...QUICK, prefix: at })
  let writes = 0
  for (let round = 0; round < 5; round += 1) {
    // After a compaction the watch starts again: the replica lists the log while other replicas move the head.
    for (let i = 0; i < 20; i += 1) await put(other, `moved-${i}`)
    store.client.turnAway()
    await compact()
    for (let i = 0; i < 20; i += 1) {
      await Promise.all([put(log, `own-${(writes += 1)}`), put(other, `other-${writes}`)])
    }
  }
  await Promise.all([log.refresh(), other.refresh()])
  t.equal(log.revision, other.revision)
  t.same(log.list('record'), other.list('record'))
})

t.test('the leader hands over: nobody notices', async (t) => {
  const { log } = await openReplica(t, cluster, { ...QUICK, prefix: prefix() })
  for (let i = 0; i < 3; i += 1) {
    const leader = await cluster.leader()
    const { members } = (await cluster.call('cluster/member/list', {})) as {
      members: { ID: string; clientURLs: string[] }[]
    }
    const next = members.find(({ clientURLs }) => !clientURLs[0]!.endsWith(`:${leader.port}`))!
    const write = Promise.all(Array.from({ length: 20 }, (_, k) => put(log, `${i}-${k}`)))
    await cluster.call('maintenance/transfer-leadership', { targetID: next.ID }, leader)
    await write
  }
  t.equal(log.count('record'), 60)
})

t.test('the store is taken away under a broker: nothing is written any more, and why is said', async (t) => {
  const at = prefix()
  const { log, store, logger } = await openReplica(t, cluster, { ...QUICK, prefix: at })
  await put(log, 'first')
  await cluster.call('kv/deleterange', { key: base64(`${at}/`), range_end: base64(`${at}0`) })
  const error = await failure(put(log, 'second'))
  t.match(error, { code: 'Stale' })
  t.match(
    error.message,
    /^etcd:\/\/127[^ ]*\/faults\/\d+: the head of the log (is gone|was taken away): stop all brokers/,
  )
  await eventually(() => logger.lines.some(({ message }) => message === 'the store is lost'), {
    say: 'the log says it',
  })
  t.match(await failure(log.refresh()), { code: 'Stale' })
  const { kvs } = await store.client.range(store.keys.all, { action: 'look', signal: never })
  t.same(kvs, [])
  t.ok(has(log, 'first'), 'what it knew can be read')
})

t.test('etcd went back, as by a restore: a broker does not go on as if nothing had been', async (t) => {
  const at = prefix()
  const { log, store } = await openReplica(t, cluster, { ...QUICK, prefix: at })
  await put(log, 'first')
  const { kvs } = await store.client.range({ key: store.keys.head }, { action: 'look', signal: never })
  await put(log, 'second')
  await store.client.put(store.keys.head, kvs[0]!.value, { action: 'put back', signal: never })
  const error = await failure(put(log, 'third'))
  t.match(error, { code: 'Stale' })
  t.match(error.message, /it went back from revision 2 to 1, as by a restore of etcd/)
})

async function compact(): Promise<void> {
  const { header } = (await cluster.call('kv/range', { key: base64('none') })) as { header: { revision: string } }
  await cluster.call('kv/compaction', { revision: header.revision, physical: true }).catch((error: unknown) => {
    // etcd refuses a second compaction at the same revision.
    if (!String(error).includes('has been compacted')) throw error
  })
}
