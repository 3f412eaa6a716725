import t from 'tap'
import { DEFAULT_MEMBER_QUOTA } from '../../model/member-quota.ts'
import type { Peer, WatchMessage, WatchRequest } from '../../protocol/broker-api.ts'
import { type Harness, Publisher, Watcher, anExport, join_, startBroker } from './support/harness.ts'

const headless = (name: string, uid = 'u'): ReturnType<typeof anExport> => anExport(name, { type: 'Headless', uid })

/** Opens a watch that the test reads one message at a time. */
function open(harness: Harness, peer: Peer, signal: AbortSignal): AsyncIterator<WatchMessage, undefined> {
  return harness.broker.watch(peer, {}, signal)[Symbol.asyncIterator]() as AsyncIterator<WatchMessage, undefined>
}

t.test('snapshot, synced, deltas', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([headless('web')])
  const watcher = new Watcher(harness, peer)
  await watcher.line(/^synced/)
  await publisher.put(headless('db'))
  await watcher.line('put milano/ServiceExport/shop/db')
  await publisher.remove(headless('web'))
  await watcher.line('remove milano/ServiceExport/shop/web')
  await watcher.stop()
  t.same(watcher.lines, [
    'reset whole',
    'put milano/Cluster//milano',
    'put milano/ServiceExport/shop/web',
    'synced complete=,milano departed=',
    'put milano/ServiceExport/shop/db',
    'remove milano/ServiceExport/shop/web',
  ])
})

t.test('who is complete is told when it becomes so; the broker itself when all are', async (t) => {
  const harness = await startBroker(t)
  const milano = await join_(harness, 'milano')
  const watcher = new Watcher(harness, milano.peer)
  const young = new Watcher(harness, milano.peer, { takes: ['owners'] })
  await watcher.line('synced complete= departed=')
  await young.line('synced complete= departed=')
  const reported = async (whole: string, change: string): Promise<void> => {
    // The broker reports completeness at most once in a second.
    await harness.clock.advance(1000)
    await watcher.line(`synced ${whole}`)
    await young.line(`owners ${change}`)
  }
  await new Publisher(harness, milano.peer).publish([])
  await reported('complete=,milano departed=', 'complete=+,+milano departed=')
  const paris = await join_(harness, 'paris')
  await reported('complete=milano departed=', 'complete=- departed=')
  await harness.broker.leave(paris.peer)
  await reported('complete=,milano departed=paris', 'complete=+ departed=+paris')
  await Promise.all([watcher.stop(), young.stop()])
})

t.test('resuming costs the difference', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([headless('a'), headless('b')])
  const first = new Watcher(harness, peer)
  await first.line(/^synced/)
  await first.stop()
  await publisher.put(headless('c'))
  await publisher.remove(headless('a'))
  await publisher.acknowledged()

  const { epoch, revision } = first
  const second = new Watcher(harness, peer, { resume: { epoch, revision } })
  await second.line(/^synced/)
  await second.stop()
  t.same(second.lines, [
    'reset resumed',
    'put milano/ServiceExport/shop/c',
    'remove milano/ServiceExport/shop/a',
    'synced complete=,milano departed=',
  ])
  for (const [name, resume] of [
    ['another epoch', { epoch: 'x', revision }],
    ['a future that never was (the state was restored from a backup)', { epoch, revision: revision + 1000 }],
  ] as const) {
    const other = new Watcher(harness, peer, { resume })
    await other.line(/^synced/)
    await other.stop()
    t.equal(other.lines[0], 'reset whole', name)
    const shown = new Set<string>()
    for (const line of other.lines) {
      const [what = '', key = ''] = line.split(' ')
      if (what === 'put') shown.add(key)
      if (what === 'remove') t.ok(shown.delete(key), 'a snapshot removes what it has shown, and nothing else')
    }
    t.notOk(shown.has('milano/ServiceExport/shop/a'), 'what is gone is gone')
  }
})

t.test('the same bytes for everybody, encoded once', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([headless('a')])
  const watchers = [1, 2, 3].map(() => new Watcher(harness, peer))
  await publisher.put(headless('b'))
  for (const watcher of watchers) await watcher.line('put milano/ServiceExport/shop/b')
  const [one, two, three] = watchers.map((watcher) => watcher.batches.at(-1))
  t.ok(one !== undefined && one === two && two === three, 'not only equal: one object')
  for (const watcher of watchers) await watcher.stop()
})

t.test('a slow reader skips to the latest state', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish([])
  const stop = new AbortController()
  const messages = open(harness, peer, stop.signal)
  while ((await messages.next()).value?.t !== 'synced');
  for (let i = 0; i < 500; i += 1) await publisher.put(headless('a', `u${i}`))
  await publisher.acknowledged()
  const next = (await messages.next()).value
  t.equal(next?.t === 'batch' ? next.events.length : 0, 1, 'one event for 500 writes')
  stop.abort()
  t.equal((await messages.next()).done, true)
})

t.test('one that falls behind compaction starts anew, also in the middle of a snapshot', async (t) => {
  const harness = await startBroker(t, { keepRemoved: 10 })
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  const many = Array.from({ length: 600 }, (_, i) => headless(`s${i}`))
  await publisher.publish(many)
  const stop = new AbortController()
  const messages = open(harness, peer, stop.signal)
  const idle = new Watcher(harness, peer)
  await idle.line(/^synced/)
  await messages.next()
  await messages.next()
  for (const record of many.slice(0, 100)) await publisher.remove(record)
  await publisher.acknowledged()
  await publisher.put(headless('last'))
  await publisher.acknowledged()
  const kinds: string[] = []
  let records = 0
  for (;;) {
    const { value } = await messages.next()
    kinds.push(value?.t ?? '')
    if (value?.t === 'reset') records = 0
    if (value?.t === 'batch') records += value.events.length
    if (value?.t === 'synced' || value === undefined) break
  }
  t.match(kinds, ['reset', 'batch', 'batch', 'synced'])
  t.equal(records, 502, 'the rest and the Cluster record')
  stop.abort()
  await idle.stop()
})

t.test('too many watches of one cluster', async (t) => {
  const harness = await startBroker(t, {
    config: {
      limits: { membersPerClusterset: 9, quota: { ...DEFAULT_MEMBER_QUOTA, streams: 2 } },
    },
  })
  const { peer } = await join_(harness, 'milano')
  const first = new Watcher(harness, peer)
  await first.line(/^synced/)
  t.match(await new Watcher(harness, peer).ended(), {
    message: 'watch: the quota of cluster "milano" is 2 streams, one of them to publish',
  })
  await first.stop()
  const again = new Watcher(harness, peer)
  await again.line(/^synced/)
  await again.stop()
})

t.test('restart: everything is as it was', async (t) => {
  const harness = await startBroker(t)
  const [milano, paris] = [await join_(harness, 'milano'), await join_(harness, 'paris')]
  const publisher = new Publisher(harness, milano.peer)
  await publisher.publish([anExport('web')])
  const before = new Watcher(harness, milano.peer)
  await before.line(/^synced/)
  await before.stop()
  await harness.stop()

  const { stateDir, clock } = harness
  const again = await startBroker(t, { stateDir, clock })
  const after = new Watcher(again, milano.peer, { resume: { epoch: before.epoch, revision: before.revision } })
  await after.line(/^synced/)
  t.same(after.lines, ['reset resumed', 'synced complete=milano departed='], 'nothing is sent again')
  const whole = new Watcher(again, paris.peer)
  await whole.line(/^synced/)
  t.same(
    whole.lines.filter((line) => line.startsWith('put')).sort(),
    before.lines.filter((line) => line.startsWith('put')).sort(),
    'the same records and addresses',
  )
  const same = new Publisher(again, milano.peer)
  await same.publish([anExport('web')])
  t.same(same.replies, [{ t: 'inSync', takesStatus: true, keepsToOffers: true }])
  await again.broker.leave(paris.peer)
  t.same((await join_(again, 'paris')).response.globalCIDRs, paris.response.globalCIDRs)
  await Promise.all([after.stop(), whole.stop()])
})

t.test('a member of the last release is sent what it was sent; both have the same in the end', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const publisher = new Publisher(harness, peer)
  await publisher.publish(Array.from({ length: 700 }, (_, i) => headless(`s${i}`)))
  const kinds = async (takes: WatchRequest): Promise<string[]> => {
    const seen: string[] = []
    const stop = new AbortController()
    for await (const { t: kind } of harness.broker.watch(peer, takes, stop.signal)) {
      seen.push(kind)
      if (kind === 'synced') stop.abort()
    }
    return seen
  }
  t.same(await kinds({}), ['reset', 'batch', 'batch', 'batch', 'synced'])
  t.same(await kinds({ takes: ['zstd', 'owners'] }), ['reset', 'packed', 'synced'])
  const [old, young] = [new Watcher(harness, peer), new Watcher(harness, peer, { takes: ['zstd', 'owners'] })]
  await publisher.put(headless('late'))
  for (const watcher of [old, young]) await watcher.line('put milano/ServiceExport/shop/late')
  t.same(old.lines, young.lines)
  await Promise.all([old.stop(), young.stop()])
})

t.test('a stream that comes and goes writes nothing that all others have to look at', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const first = new Publisher(harness, peer)
  await first.publish([headless('a')])
  const watcher = new Watcher(harness, peer)
  await watcher.line(/^synced/)
  const row = harness.log.get('member', 'milano')
  const lines = watcher.lines.length
  first.end()
  const second = new Publisher(harness, peer)
  await second.publish([headless('a')])
  await harness.broker.tidy()
  t.equal(harness.log.get('member', 'milano'), row, 'the very row')
  t.match(harness.log.get('contact', 'milano'), { lastSeenMs: harness.clock.now() })
  t.equal(watcher.lines.length, lines)
  await watcher.stop()
})
