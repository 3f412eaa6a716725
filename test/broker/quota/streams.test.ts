/**
 * The limit on the streams of one member. The broker refuses the newest stream, and streams of a broken connection lock
 * no member out.
 */
import t from 'tap'
import { DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import { DEFAULT_MEMBER_QUOTA } from '../../../model/member-quota.ts'
import type { Peer } from '../../../protocol/broker-api.ts'
import { Publisher, Watcher, join_, startBroker } from '../support/harness.ts'

const limits = { ...DEFAULT_BROKER_CONFIG.limits, quota: { ...DEFAULT_MEMBER_QUOTA, streams: 3 } }
const FULL = {
  reason: 'QuotaStreams',
  message: 'watch: the quota of cluster "milano" is 3 streams, one of them to publish',
}

t.test('the newest is refused, on a connection that has one', async (t) => {
  const harness = await startBroker(t, { config: { limits } })
  const { peer } = await join_(harness, 'milano')
  const other = await join_(harness, 'paris', { facts: { ...PARIS } })
  const at = (connection: string): Peer => ({ ...peer, connection })
  const open = [new Watcher(harness, at('a:1')), new Watcher(harness, at('a:1'))]
  for (const watch of open) await watch.line(/^synced/)
  for (let i = 0; i < 100; i += 1) t.match(await new Watcher(harness, at('a:1')).ended(), FULL)
  const publisher = new Publisher(harness, at('a:1'))
  await publisher.publish([])
  t.equal(publisher.ended, undefined, 'the place of the stream that publishes is kept for it')
  const another = new Watcher(harness, other.peer)
  await another.line(/^synced/)
  await open[0]?.stop()
  const again = new Watcher(harness, at('a:1'))
  await again.line(/^synced/)
  for (const watch of [again, another, ...open.slice(1)]) await watch.stop()
})

const PARIS = { podCIDRs: ['10.99.0.0/16'], serviceCIDRs: [], labels: {}, version: '0.1.0' }

t.test('a member that comes back takes the place of its oldest stream, dead or not', async (t) => {
  const harness = await startBroker(t, { config: { limits } })
  const { peer } = await join_(harness, 'milano')
  const at = (connection: string): Peer => ({ ...peer, connection })
  // These streams are half open: no peer reads them, so nothing ends them either.
  const dead = []
  for (const connection of ['a:1', 'a:2']) {
    const stream = harness.broker.watch(at(connection), {}, new AbortController().signal)[Symbol.asyncIterator]()
    await stream.next()
    dead.push(stream)
  }
  for (let i = 3; i < 20; i += 1) {
    const back = new Watcher(harness, at(`a:${i}`))
    await back.line(/^synced/)
    if (i < 19) continue
    t.equal(back.failure, undefined)
    t.match(await new Watcher(harness, at(`a:${i}`)).ended(), FULL, 'a second one of the connection is the newest')
    await back.stop()
  }
  const replaced = /^watch: a newer connection of cluster "milano" has taken over/
  for (const stream of dead) await t.rejects(stream.next(), { message: replaced })
})

t.test('an operator gives one member more, and what is open stays when it gets less', async (t) => {
  const harness = await startBroker(t, { config: { limits } })
  const { peer } = await join_(harness, 'milano')
  const open = [new Watcher(harness, peer), new Watcher(harness, peer)]
  for (const watch of open) await watch.line(/^synced/)
  t.match(await new Watcher(harness, peer).ended(), FULL)
  await harness.tokens.changeQuota({ cluster: 'milano', change: { streams: 4 } })
  await harness.log.refresh()
  const third = new Watcher(harness, peer)
  await third.line(/^synced/)
  await harness.tokens.changeQuota({ cluster: 'milano', change: { streams: 2 } })
  await harness.log.refresh()
  t.match(await new Watcher(harness, peer).ended(), { reason: 'QuotaStreams' })
  for (const watch of [...open, third]) {
    t.equal(watch.failure, undefined)
    await watch.stop()
  }
})
