/** The rate limits on failed joins, on statuses and on writes. */
import t from 'tap'
import { JoinGate } from '../../broker/members/join-tokens.ts'
import { StatusRateLimiter } from '../../broker/records/status-records.ts'
import { WriteRateLimiter } from '../../broker/sessions/rate-limited-writes.ts'
import type { ClusterId } from '../../model/ids.ts'
import type { MemberStatus } from '../../model/member-status.ts'
import type { Peer } from '../../protocol/broker-api.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { Publisher, joinRequest, join_, startBroker } from './support/harness.ts'

t.test('joins of one address that fail', async (t) => {
  const clock = new FakeClock()
  const gate = new JoinGate(clock)
  for (let i = 0; i < 20; i += 1) {
    gate.check('192.0.2.1')
    gate.count('192.0.2.1')
  }
  const want = {
    code: 'ResourceExhausted',
    field: 'token',
    message: 'token: not known to this broker, and too many joins from 192.0.2.1 have failed: try again in 3 s',
  }
  t.throws(() => gate.check('192.0.2.1'), want)
  gate.check('192.0.2.2')
  await clock.advance(3000)
  gate.check('192.0.2.1')
  gate.count('192.0.2.1')
  t.throws(() => gate.check('192.0.2.1'), want)
  for (let i = 0; i < 10_000; i += 1) gate.count(`10.0.${i >> 8}.${i & 255}`)
  gate.check('192.0.2.1')
  t.pass('addresses are forgotten, not kept without end')
})

t.test('looks at joins with one token: they spend nothing, and are bounded all the same', async (t) => {
  const harness = await startBroker(t)
  const request = await joinRequest(harness, { cluster: 'milano' })
  for (let n = 0; n < 20; n += 1) await harness.broker.lookAtJoin(request, '192.0.2.1')
  const want = { code: 'ResourceExhausted', message: 'token: too many previews of joins used it: try again in 3 s' }
  await t.rejects(harness.broker.lookAtJoin(request, '192.0.2.2'), want, 'wherever it comes from')
  await t.resolves(harness.broker.lookAtJoin(await joinRequest(harness, { cluster: 'milano' }), '192.0.2.1'))
  await t.resolves(harness.broker.join(request, '192.0.2.1'), 'and the join itself is not held up')
})

t.test('statuses: one in five seconds, the last word wins', async (t) => {
  const clock = new FakeClock()
  const written: number[] = []
  const pace = new StatusRateLimiter(clock, (_peer, { leftOut }) => written.push(leftOut))
  const peer = { cluster: 'milano' as ClusterId, address: '', serial: '' } satisfies Peer
  const status = (leftOut: number): MemberStatus => ({ notImported: [], leftOut })
  t.ok(pace.isDue(peer.cluster))
  pace.wrote(peer.cluster)
  for (const i of [1, 2, 3]) {
    t.notOk(pace.isDue(peer.cluster))
    pace.hold(peer, status(i))
  }
  await clock.advance(4999)
  t.same(written, [])
  await clock.advance(1)
  t.same(written, [3])
  t.notOk(pace.isDue(peer.cluster), 'and five seconds from then')
  pace.hold(peer, status(4))
  pace.withdraw(peer.cluster)
  await clock.advance(5000)
  t.same(written, [3], 'what was withdrawn is not written')
  t.ok(pace.isDue(peer.cluster))
  pace.close()
})

t.test('statuses of a member reach the log by that pace, also over several streams', async (t) => {
  const harness = await startBroker(t)
  const { peer } = await join_(harness, 'milano')
  const stored = (): unknown => {
    const body = harness.log.get('record', 'milano/MemberStatus//milano')?.body
    return body?.kind === 'MemberStatus' ? body.leftOut : undefined
  }
  for (const leftOut of [1, 2, 3]) {
    const stream = new Publisher(harness, peer)
    await stream.publish([])
    await stream.status({ notImported: [], leftOut })
    await stream.acknowledged()
    t.equal(stored(), 1)
    stream.end()
  }
  await harness.clock.advance(5000)
  await harness.log.refresh()
  t.equal(stored(), 3)
})

t.test('writes: a start at once, then a share of the time', async (t) => {
  const clock = new FakeClock()
  const pace = new WriteRateLimiter(clock, { burstMs: 100, share: 0.25, bytesPerMs: 1000 })
  t.equal(pace.used(60, 40_000), 0, 'the burst')
  t.equal(pace.used(10, 0), 40, 'then four times as long as it took')
  await clock.advance(40)
  t.equal(pace.used(1, 0), 4)
  t.equal(pace.used(1_000_000, 0), 2000, 'but never for ever')
  await clock.advance(10_000)
  t.equal(pace.used(100, 0), 0, 'who was quiet has a start again')
})
