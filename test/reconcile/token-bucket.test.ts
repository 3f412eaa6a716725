/** Token buckets: a burst, then a rate, also for a caller in debt. */
import fc from 'fast-check'
import t from 'tap'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { TokenBucket } from '../../reconcile/token-bucket.ts'

const rate = { burst: 10, perSecond: 4 }

t.test('a burst at once, then the rate', async (t) => {
  const clock = new FakeClock()
  const bucket = new TokenBucket(clock)
  t.equal(bucket.take(10, rate), 0)
  t.notOk(bucket.canTake(1, rate))
  t.equal(bucket.take(2, rate), 500, 'it owes two')
  await clock.advance(500)
  t.equal(bucket.used(rate.perSecond), 10)
  await clock.advance(250)
  t.ok(bucket.canTake(1, rate))
  t.strictSame([bucket.takeIfLeft(2, rate), bucket.takeIfLeft(1, rate)], [false, true], 'a refusal takes nothing')
  t.notOk(bucket.canTake(1, rate))
  t.equal(bucket.used(rate.perSecond, 3), 3, 'the rest is forgiven')
  await clock.advance(3_600_000)
  t.equal(bucket.used(rate.perSecond), 0, 'an hour of quiet is no larger burst')
})

t.test('a caller that waits as it should gets the burst and the rate, no more and no less', async (t) => {
  const takes = fc.array(
    fc.record({ count: fc.integer({ min: 1, max: 30 }), idleMs: fc.integer({ min: 0, max: 5000 }) }),
  )
  await fc.assert(
    fc.asyncProperty(takes, async (list) => {
      const clock = new FakeClock()
      const bucket = new TokenBucket(clock)
      const begunMs = clock.monotonic()
      let taken = 0
      for (const { count, idleMs } of list) {
        await clock.advance(idleMs)
        const pauseMs = bucket.take(count, rate)
        taken += count
        if (pauseMs > 0)
          t.ok(Math.abs(bucket.used(rate.perSecond) - rate.burst - (pauseMs * rate.perSecond) / 1000) < 1e-6)
        await clock.advance(Math.ceil(pauseMs))
        const most = rate.burst + ((clock.monotonic() - begunMs) * rate.perSecond) / 1000
        if (taken > most + 1e-6) return false
        if (pauseMs > 0 && bucket.used(rate.perSecond) < rate.burst - rate.perSecond / 1000 - 1e-6) return false
      }
      return true
    }),
  )
})
