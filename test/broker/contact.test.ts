import t from 'tap'
import type { WatchMessage } from '../../protocol/broker-api.ts'
import { Publisher, Watcher, join_, startBroker } from './support/harness.ts'

t.test('members are told who is not heard of, and for how long', async (t) => {
  const harness = await startBroker(t)
  const { broker, clock } = harness
  const milano = await join_(harness, 'milano')
  const paris = await join_(harness, 'paris')
  const tokyo = await join_(harness, 'tokyo')
  const watcher = new Watcher(harness, milano.peer)
  await watcher.line(/^synced/)
  const publisher = new Publisher(harness, paris.peer)
  await publisher.publish([])
  await harness.broker.leave(tokyo.peer)
  await clock.advance(60_000)
  broker.reportContact()
  await watcher.line('contact')
  publisher.end()
  await clock.advance(60_000)
  broker.reportContact()
  await watcher.line('contact paris:60000')
  const again = new Publisher(harness, paris.peer)
  await again.publish([])
  watcher.lines.length = 0
  broker.reportContact()
  await watcher.line('contact')
  await watcher.stop()
  again.end()
  await clock.advance(5000)
  const late = new Watcher(harness, paris.peer)
  await late.line(/^synced/)
  t.notOk(
    late.lines.some((line) => line.startsWith('contact')),
    'what was said before it came is old news',
  )
  broker.reportContact()
  await late.line('contact milano:5000')
  t.equal(late.brokerMs, clock.now(), "the broker's time comes along")
  await late.stop()
})

t.test('a time that had to wait is not said', async (t) => {
  const harness = await startBroker(t)
  const { broker, clock } = harness
  const milano = await join_(harness, 'milano')
  for (const [waitMs, isSaid] of [
    [1000, true],
    [1001, false],
  ] as const) {
    const stop = new AbortController()
    const messages = broker.watch(milano.peer, {}, stop.signal)[Symbol.asyncIterator]()
    const next = async (kind: WatchMessage['t']): Promise<WatchMessage> => {
      for (;;) {
        const { value } = (await messages.next()) as IteratorYieldResult<WatchMessage>
        if (value.t === kind) return value
      }
    }
    await next('synced')
    broker.reportContact()
    await clock.advance(waitMs)
    t.equal('nowMs' in (await next('contact')), isSaid, `after ${waitMs} ms`)
    stop.abort()
    await messages.return?.()
  }
})

t.test('a broker counts its own life only', async (t) => {
  const first = await startBroker(t)
  await join_(first, 'milano')
  const { peer } = await join_(first, 'paris')
  await first.stop()
  await first.clock.advance(3_600_000)
  const second = await startBroker(t, { stateDir: first.stateDir, clock: first.clock })
  const watcher = new Watcher(second, peer)
  await watcher.line(/^synced/)
  await second.clock.advance(1000)
  second.broker.reportContact()
  await watcher.line('contact milano:1000')
  await watcher.stop()
})
