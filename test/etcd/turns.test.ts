/**
 * Replicas that write at the same time let each other write (decision 57), and each acknowledged write is stored.
 * `before` lets other replicas write between a replica's decision and its transaction.
 */
import t, { type Test } from 'tap'
import type { EtcdLog } from '../../broker/store/etcd/etcd-log.ts'
import type { EtcdStore } from '../../broker/store/etcd/etcd-store.ts'
import { row } from '../compliance/record-log.ts'
import { eventually } from '../support/eventually.ts'
import { messageOf } from '../support/failure.ts'
import { type EtcdCluster, base64, startEtcdCluster } from './support/etcd-cluster.ts'
import { openReplica } from './support/open-replica.ts'

t.setTimeout(170_000)

let cluster: EtcdCluster
let n = 0

interface Replica {
  readonly log: EtcdLog
  readonly store: EtcdStore
}

t.before(async () => {
  cluster = await startEtcdCluster(t)
})

async function replicas(t: Test, count: number): Promise<Replica[]> {
  const prefix = `/turns/${(n += 1)}`
  const opened: Replica[] = []
  for (let i = 0; i < count; i += 1) opened.push(await openReplica(t, cluster, { prefix }))
  return opened
}

const name = (key: string): `${string}/K/n/${string}` => `a/K/n/${key}`
const put = (log: EtcdLog, key: string, value = '1'): Promise<void> =>
  log.transact((tx) => tx.put('record', name(key), row(value)))

/** Does this work before each transaction that the replica sends, until the work returns `enough`. */
function before({ store }: Replica, work: () => Promise<'again' | 'enough'>): void {
  const { client } = store
  const send = client.txn.bind(client)
  let isOver = false
  client.txn = async (request, init) => {
    if (!isOver && (await work()) === 'enough') isOver = true
    return send(request, init)
  }
}

/** Returns how many replicas announce that they want to write. */
async function wants({ store }: Replica): Promise<number> {
  const { key, rangeEnd } = store.keys.wants
  const request = { key: key.toString('base64'), range_end: rangeEnd.toString('base64'), count_only: true }
  const { count = '0' } = (await cluster.call('kv/range', request)) as { count?: string }
  return Number(count)
}

t.test('each has its turn while all write without a pause', async (t) => {
  const logs = (await replicas(t, 3)).map(({ log }) => log)
  const order: number[] = []
  const writeOn = async (log: EtcdLog, i: number): Promise<void> => {
    while (order.length < 150) {
      await put(log, `${i}-${order.length % 5}`)
      order.push(i)
    }
  }
  await Promise.all(logs.map(writeOn))
  for (const i of logs.keys()) {
    const places = [-1, ...order.flatMap((one, place) => (one === i ? [place] : [])), order.length]
    const gaps = places.slice(1).map((place, k) => place - (places[k] ?? 0) - 1)
    t.ok(Math.max(...gaps) < 25, `${i} was overtaken ${Math.max(...gaps)} times in a row`)
  }
})

t.test('what a later decision takes back is not acknowledged without being written', async (t) => {
  const [a, b] = (await replicas(t, 2)) as [Replica, Replica]
  let found: boolean | undefined
  let later: Promise<void> | undefined
  before(a, async () => {
    await put(b.log, 'foreign')
    later = a.log.transact((tx) => {
      found = tx.get('record', name('x')) !== undefined
      if (found) tx.remove('record', name('x'))
    })
    return 'enough'
  })
  await put(a.log, 'x')
  const isThere = a.log.get('record', name('x')) !== undefined
  await later
  t.ok(isThere || found === true, 'whoever comes after the write sees it, unless it was taken away by one who saw it')
  t.equal(a.log.get('record', name('x')) === undefined, found)
})

t.test('a decision without a write needs no quiet moment', async (t) => {
  const [a, b] = (await replicas(t, 2)) as [Replica, Replica]
  const { client } = a.store
  const range = client.range.bind(client)
  let looks = 0
  client.range = async (request, init) => {
    if (init.action === 'look at the head of the log') {
      looks += 1
      await put(b.log, `foreign-${looks}`)
    }
    return range(request, init)
  }
  for (let i = 1; i <= 5; i += 1) {
    await put(b.log, `asked-${i}`)
    const seen = await a.log.transact((tx) => tx.get('record', name(`asked-${i}`)))
    t.ok(seen, `${i}: what was there when it was asked for is seen`)
    t.ok(looks <= i, `${looks} looks for ${i} decisions`)
  }
})

t.test('who wants to write says so no more once it has written, or has nothing to write', async (t) => {
  const [a, b] = (await replicas(t, 2)) as [Replica, Replica]
  let left = 3
  before(a, async () => {
    await put(b.log, `foreign-${left}`)
    return (left -= 1) > 0 ? 'again' : 'enough'
  })
  await put(a.log, 'x')
  t.equal(await wants(a), 0, 'it has written')

  before(a, async () => {
    await put(b.log, 'taken', '2')
    return 'enough'
  })
  await a.log.transact((tx) => {
    if (tx.get('record', name('taken')) === undefined) tx.put('record', name('taken'), row('1'))
  })
  await eventually(async () => (await wants(a)) === 0, { say: 'it has nothing to write' })
})

t.test('replicas that died while they wanted to write hold up nobody for long, and are forgotten', async (t) => {
  const [a, b, c] = (await replicas(t, 3)) as [Replica, Replica, Replica]
  const say = { action: 'want to write', signal: new AbortController().signal }
  for (const dead of ['dead-1', 'dead-2', 'dead-3'])
    await a.store.client.put(a.store.keys.want(dead), Buffer.alloc(0), say)
  t.equal(await wants(a), 3)
  // A replica that opens the log now has not seen when the dead replicas made their announcements.
  const { log: late } = await openReplica(t, cluster, { prefix: a.store.keys.prefix })
  const began = performance.now()
  await Promise.all([a.log, b.log, c.log, late].map((log) => put(log, 'x')))
  t.ok(performance.now() - began < 10_000, 'not for each of them, and not for long')
  const clears = async (): Promise<boolean> => {
    await put(late, 'y')
    return (await wants(a)) === 0
  }
  await eventually(clears, { deadlineMs: 10_000, say: 'nothing is left of them' })
})

t.test('as many rows as one transaction takes, and replicas whose turn is over beside them', async (t) => {
  const [a, b] = (await replicas(t, 2)) as [Replica, Replica]
  const say = { action: 'want to write', signal: new AbortController().signal }
  for (let i = 0; i < 20; i += 1) await a.store.client.put(a.store.keys.want(`dead-${i}`), Buffer.alloc(0), say)
  await put(a.log, 'x')
  for (const rows of [3000, 3969, 4016, 4032]) {
    await a.log.transact((tx) => {
      for (let i = 0; i < rows; i += 1) tx.put('record', name(`${rows}-${i}`), row('1'))
    })
    await eventually(() => b.log.get('record', name(`${rows}-${rows - 1}`)) !== undefined, { deadlineMs: 20_000 })
  }
  t.ok((await wants(a)) <= 4, 'they are taken away')
})

t.test('a large write that is overtaken leaves no parts', async (t) => {
  const [a, b] = (await replicas(t, 2)) as [Replica, Replica]
  let left = 2
  before(a, async () => {
    await put(b.log, `foreign-${left}`)
    return (left -= 1) > 0 ? 'again' : 'enough'
  })
  await a.log.transact((tx) => {
    for (let i = 0; i < 5000; i += 1) tx.put('record', name(String(i)), row('1'))
  })
  const { key, rangeEnd } = a.store.keys.allStaged
  const parts = async (): Promise<string> => {
    const request = { key: key.toString('base64'), range_end: rangeEnd.toString('base64'), count_only: true }
    return ((await cluster.call('kv/range', request)) as { count?: string }).count ?? '0'
  }
  await put(b.log, 'completes it')
  await eventually(async () => (await parts()) === '0', { deadlineMs: 20_000, say: 'no part is left' })
  t.equal(await wants(a), 0)
})

t.test('a store that is another one meanwhile gets nothing', async (t) => {
  const [a] = (await replicas(t, 1)) as [Replica]
  const { prefix } = a.store.keys
  before(a, async () => {
    await cluster.call('kv/deleterange', { key: base64(`${prefix}/`), range_end: base64(`${prefix}0`) })
    return 'enough'
  })
  t.match(await messageOf(put(a.log, 'x')), /stop all brokers/)
  const left = { key: base64(`${prefix}/`), range_end: base64(`${prefix}0`), count_only: true }
  t.equal(((await cluster.call('kv/range', left)) as { count?: string }).count ?? '0', '0')
  const { log } = await openReplica(t, cluster, { prefix })
  await put(log, 'y')
  t.equal(log.revision, 1, 'it is as good as new')
})
