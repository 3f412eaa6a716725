/** Several replicas write one log, and no replica overwrites a change that it has not seen. */
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { EtcdLog } from '../../broker/store/etcd/etcd-log.ts'
import { row } from '../compliance/record-log.ts'
import { eventually } from '../support/eventually.ts'
import { messageOf } from '../support/failure.ts'
import { type EtcdCluster, base64, startEtcdCluster } from './support/etcd-cluster.ts'
import { connect, openReplica } from './support/open-replica.ts'

let cluster: EtcdCluster
let n = 0
const prefix = (): string => `/replicas/${(n += 1)}`

function three(t: Test, keepRemoved = 1000): Promise<EtcdLog[]> {
  const at = prefix()
  return Promise.all([0, 1, 2].map(async () => (await openReplica(t, cluster, { prefix: at, keepRemoved })).log))
}

t.before(async () => {
  cluster = await startEtcdCluster(t)
})

t.test('what one writes is pushed to the others, once, and none is asked to look', async (t) => {
  const [a, b, c] = (await three(t)) as [EtcdLog, EtcdLog, EtcdLog]
  t.equal(a.epoch, b.epoch)
  const reported: string[] = []
  b.onCommit((changes) => reported.push(...changes.map(({ key, revision }) => `${key}@${revision}`)))
  await a.transact((tx) => {
    tx.put('record', 'a/K/n/x', row('1'))
    tx.put('record', 'a/K/n/y', row('2'))
  })
  await a.transact((tx) => tx.remove('record', 'a/K/n/y'))
  await eventually(() => b.revision === 3 && c.revision === 3, { say: 'revision 3 at all', intervalMs: 2 })
  t.same(reported, ['a/K/n/x@1', 'a/K/n/y@2', 'a/K/n/y@3'])
  t.same(
    c.recordsAfter(0, 9).map(({ key, revision, value }) => [key, revision, value?.body]),
    [
      ['a/K/n/x', 1, row('1').body],
      ['a/K/n/y', 3, undefined],
    ],
  )
})

t.test('a refusal is decided on what all others have written before', async (t) => {
  const [a, b] = (await three(t)) as [EtcdLog, EtcdLog, EtcdLog]
  for (let i = 0; i < 30; i += 1) {
    await a.transact((tx) => tx.put('record', `a/K/n/${i}`, row('1')))
    // Replica b reads without writing, before the watch has delivered the change of replica a.
    const found = await b.transact((tx) => tx.get('record', `a/K/n/${i}`))
    if (found === undefined) t.fail(`${i} is not seen`)
  }
  await a.transact((tx) => tx.put('record', 'a/K/n/last', row('1')))
  await b.refresh()
  t.equal(b.revision, a.revision)
})

t.test('all three count at once: no number is given twice', async (t) => {
  const logs = await three(t)
  const given = await Promise.all(
    logs.flatMap((log) =>
      Array.from({ length: 60 }, () =>
        log.transact((tx) => {
          const next = tx.count('address')
          tx.put('address', String(next).padStart(4, '0'), { service: 's' })
          return next
        }),
      ),
    ),
  )
  t.same(
    [...given].sort((a, b) => a - b),
    Array.from({ length: 180 }, (_, i) => i),
  )
})

t.test('a token for one use is spent once, whoever asks at the same time', async (t) => {
  const logs = await three(t)
  const token = { hash: 'h', createdAtMs: 1, expiresAtMs: 2, usesLeft: 1, uses: [] }
  await logs[0]!.transact((tx) => tx.put('token', 't', token))
  const spend = (log: EtcdLog): Promise<void> =>
    log.transact((tx) => {
      const found = tx.get('token', 't')
      if (found === undefined || found.usesLeft < 1) throw new Error('spent')
      tx.put('token', 't', { ...found, usesLeft: found.usesLeft - 1 })
    })
  const results = await Promise.allSettled(logs.flatMap((log) => [spend(log), spend(log)]))
  t.equal(results.filter(({ status }) => status === 'fulfilled').length, 1)
  for (const result of results) if (result.status === 'rejected') t.equal((result.reason as Error).message, 'spent')
})

t.test('more in one transaction than etcd takes in one request: all or nothing, at each replica', async (t) => {
  const [a, b] = (await three(t, 20_000)) as [EtcdLog, EtcdLog, EtcdLog]
  const sizes: number[] = []
  b.onCommit((changes) => sizes.push(changes.length))
  const big = row('1'.repeat(200))
  await a.transact((tx) => {
    for (let i = 0; i < 9000; i += 1) tx.put('record', `a/K/n/${i}`, big)
  })
  await b.refresh()
  t.equal(b.count('record'), 9000)
  t.same(sizes, [9000], 'seen as one')
  // The next write goes to another replica, which must complete the write that the first replica began.
  await b.transact((tx) => {
    for (const { key } of tx.list('record')) if (!key.endsWith('7')) tx.remove('record', key)
  })
  await a.refresh()
  t.equal(a.count('record'), 900)
  const { log: late } = await openReplica(t, cluster, { prefix: `/replicas/${n}` })
  t.equal(late.count('record'), 900)
  t.equal(late.revision, a.revision)
  await a.transact((tx) => tx.put('record', 'a/K/n/after', row('1')))
  const staged = await cluster.call('kv/range', range(`/replicas/${n}/staged/`))
  t.equal(staged['count'] ?? '0', '0', 'nothing of it is left beside the log')
})

t.test('a replica that is killed in a large write: it is completed, or it was never there', async (t) => {
  const at = prefix()
  const { log, store } = await openReplica(t, cluster, { prefix: at })
  await log.transact((tx) => tx.put('record', 'a/K/n/first', row('1')))
  // This is the state that a replica leaves when it is killed before it moves the head.
  const key = store.keys.stagedPart('gone.1', 0)
  await store.client.put(key, Buffer.from('[]'), { action: 'part', signal: new AbortController().signal })
  const { log: next } = await openReplica(t, cluster, { prefix: at })
  await eventually(
    async () => {
      const { count } = await cluster.call('kv/range', range(`${at}/staged/`))
      return count === undefined || count === '0'
    },
    { say: 'the parts are swept' },
  )
  // This is the state that a replica leaves when it is killed right after it moved the head.
  const change = { scope: 'record', key: 'a/K/n/second', revision: 2, value: row('2') }
  const parts = JSON.stringify([change])
  const init = { action: 'part', signal: new AbortController().signal }
  await store.client.put(store.keys.stagedPart('gone.2', 0), Buffer.from(parts), init)
  const head = JSON.stringify({ revision: 2, compacted: 0, writes: ['gone.2'], staged: { id: 'gone.2', parts: 1 } })
  await store.client.put(store.keys.head, Buffer.from(head), init)
  await next.refresh()
  t.same(next.get('record', 'a/K/n/second'), row('2'))
  await next.transact((tx) => tx.put('record', 'a/K/n/third', row('3')))
  t.equal(next.revision, 3)
  const { log: late } = await openReplica(t, cluster, { prefix: at })
  t.same(
    late.list('record').map(({ key }) => key),
    ['a/K/n/first', 'a/K/n/second', 'a/K/n/third'],
  )
})

t.test('forgotten removals are swept while others put the same keys again', async (t) => {
  const logs = await three(t, 6)
  const work = logs.map(async (log, who) => {
    for (let i = 0; i < 40; i += 1) {
      const key = `a/K/n/${i % 7}`
      await log.transact((tx) => {
        if (tx.get('record', key) === undefined) tx.put('record', key, row(`${who}-${i}`))
        else tx.remove('record', key)
      })
    }
  })
  await Promise.all(work)
  await Promise.all(logs.map((log) => log.refresh()))
  const want = logs[0]!.list('record')
  for (const log of logs) t.same(log.list('record'), want)
  const { log: fresh } = await openReplica(t, cluster, { prefix: `/replicas/${n}`, keepRemoved: 6 })
  t.same(fresh.list('record'), want, 'no row was lost at etcd')
  await eventually(
    async () => {
      const { count } = (await cluster.call('kv/range', range(`/replicas/${n}/log/row/`))) as { count?: string }
      return Number(count ?? 0) <= want.length + 6 + 1
    },
    { say: 'few rows of removals' },
  )
})

t.test('whatever three replicas do, all end with the same, and so does a new one', async (t) => {
  const step = fc.record({
    who: fc.integer({ min: 0, max: 2 }),
    key: fc.integer({ min: 0, max: 5 }),
    value: fc.option(fc.nat(9)),
    wait: fc.boolean(),
    compact: fc.integer({ min: 0, max: 19 }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const logs = await three(t, 3)
      const reported = logs.map((log) => follow(log))
      const writes: Promise<unknown>[] = []
      for (const { who, key, value, wait, compact } of steps) {
        const write = logs[who]!.transact((tx) => {
          if (value === null) tx.remove('record', `a/K/n/${key}`)
          else tx.put('record', `a/K/n/${key}`, row(String(value)))
        })
        writes.push(write)
        if (wait) await write
        if (compact === 0) await compactNow()
      }
      await Promise.all(writes)
      await Promise.all(logs.map((log) => log.refresh()))
      const { log: late } = await openReplica(t, cluster, { prefix: `/replicas/${n}`, keepRemoved: 3 })
      const texts = [...logs, late].map((log) => JSON.stringify([log.revision, log.list('record')]))
      await Promise.all([...logs, late].map((log) => log.close()))
      return new Set(texts).size === 1 && reported.every((revisions) => isRising(revisions))
    }),
    { numRuns: 12 },
  )
  t.pass('also where etcd forgets its history meanwhile')
})

t.test('closed at any moment, it ends', async (t) => {
  for (let i = 0; i < 20; i += 1) {
    const { log, store } = await openReplica(t, cluster, { prefix: prefix() })
    const writes = Array.from({ length: i % 4 }, (_, k) =>
      log.transact((tx) => tx.put('record', `a/K/n/${k}`, row('1'))),
    )
    if (i % 3 === 0) store.client.turnAway()
    for (let turns = 0; turns < i; turns += 1) await new Promise((resolve) => setImmediate(resolve))
    await log.close()
    await Promise.all(writes)
    t.equal(await messageOf(log.refresh()), 'the log is closed')
  }
  // Here the client is stopped before the watch is open.
  for (let i = 0; i < 10; i += 1) {
    const stop = new AbortController()
    const { store } = connect(t, cluster, { prefix: prefix() })
    const watch = store.client.watch({ ...store.keys.log, startRevision: 1 }, stop.signal)
    const first = watch.next()
    for (let turns = 0; turns < i; turns += 1) await new Promise((resolve) => setImmediate(resolve))
    stop.abort(new Error('stopped here'))
    t.match(await messageOf(Promise.race([first.then(() => watch.next()), first])), /^stopped here$|did not fail/)
  }
})

function follow(log: EtcdLog): number[] {
  const revisions: number[] = []
  log.onCommit((changes) => revisions.push(...changes.map(({ revision }) => revision)))
  return revisions
}

function isRising(revisions: readonly number[]): boolean {
  return revisions.every((revision, i) => i === 0 || revision > (revisions[i - 1] ?? 0))
}

async function compactNow(): Promise<void> {
  const { header } = (await cluster.call('kv/range', { key: base64('none') })) as { header: { revision: string } }
  await cluster.call('kv/compaction', { revision: header.revision }).catch((error: unknown) => {
    // etcd refuses a second compaction at the same revision.
    if (!String(error).includes('compacted')) throw error
  })
}

function range(beginning: string): object {
  const end = `${beginning.slice(0, -1)}0`
  return { key: base64(beginning), range_end: base64(end), count_only: true }
}
