/** The settings of heartbeat and Lease as users write them: the accepted values, and the messages for refused ones. */
import t from 'tap'
import { readHeartbeat, readLease } from '../../compose/site/run-site.ts'
import { LEASE_BOUNDS, electionTiming } from '../../model/lanes/lane-servers.ts'

t.test('taken', (t) => {
  t.equal(readHeartbeat(undefined), 5000, 'the default')
  t.equal(readHeartbeat(''), 5000, 'empty is as absent')
  for (const [text, ms] of [
    ['1s', 1000],
    ['2500ms', 2500],
    ['10s', 10_000],
  ] as const)
    t.equal(readHeartbeat(text), ms, text)
  t.end()
})

t.test('refused', (t) => {
  for (const [text, expected] of [
    ['999ms', '1s to 10s'],
    ['11s', '1s to 10s'],
    ['0s', '1s to 10s'],
    ['5', 'a duration such as 500ms, 10s, 5m or 24h'],
    ['-5s', 'a duration such as 500ms, 10s, 5m or 24h'],
    ['often', 'a duration such as 500ms, 10s, 5m or 24h'],
  ] as const)
    t.throws(() => readHeartbeat(text), { message: `SEALANE_HEARTBEAT "${text}": expected ${expected}` })
  t.end()
})

t.test('a Lease', (t) => {
  t.equal(readLease(undefined), 15_000, 'the default')
  t.equal(readLease('3s'), 3000)
  t.equal(readLease('1m'), 60_000)
  for (const text of ['2999ms', '61s'])
    t.throws(() => readLease(text), { message: `SEALANE_LEASE "${text}": expected 3s to 1m` })
  t.end()
})

t.test('a leader gives up before others take over, at any length', (t) => {
  t.same(electionTiming(15_000), { durationMs: 10_000, renewWithinMs: 7000, retryMs: 2000 }, 'the default')
  for (let ms: number = LEASE_BOUNDS.minMs; ms <= LEASE_BOUNDS.maxMs; ms += 1000) {
    const { durationMs, renewWithinMs, retryMs } = electionTiming(ms)
    t.ok(renewWithinMs < durationMs && 3 * retryMs < renewWithinMs, `${ms} ms`)
    t.ok(durationMs <= ms)
  }
  t.end()
})
