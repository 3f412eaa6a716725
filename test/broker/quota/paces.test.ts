/** The rate limits on changes of one member, and the time when it learns about its quota. */
import t from 'tap'
import { ChangeRateLimiter, QuotaNews } from '../../../broker/sessions/quota-pressure.ts'
import { SnapshotRateLimiter, startCost } from '../../../broker/sessions/snapshots.ts'
import { DEFAULT_MEMBER_QUOTA, type MemberQuota, type QuotaReport } from '../../../model/member-quota.ts'
import type { ClusterId } from '../../../model/ids.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const quota = (change: Partial<MemberQuota>): MemberQuota => ({ ...DEFAULT_MEMBER_QUOTA, ...change })

t.test('a whole set at once, then the rate, and nothing is held against who was quiet', async (t) => {
  const clock = new FakeClock()
  const pace = new ChangeRateLimiter(clock)
  const limit = quota({ records: 1000, changes: 50 })
  t.equal(pace.took(1000, limit), 0, 'its whole set')
  t.notOk(pace.isSlowed)
  t.equal(pace.took(50, limit), 1000)
  t.ok(pace.isSlowed)
  await clock.advance(1000)
  t.equal(pace.took(5, limit), 100)
  await clock.advance(100)
  pace.look(limit)
  t.ok(pace.isSlowed, 'it goes on at its rate')
  await clock.advance(10_000)
  pace.look(limit)
  t.notOk(pace.isSlowed, 'calm for ten seconds')
  await clock.advance(3_600_000)
  t.equal(pace.took(1000, limit), 0)
  t.equal(pace.took(1, limit), 20, 'an hour of quiet is no larger burst')
})

t.test('in the long run the rate, whatever the groups', async (t) => {
  for (const [changes, records, size] of [
    [1, 0, 1],
    [3, 5, 2],
    [100, 50_000, 64],
    [100_000, 10, 64],
  ] as const) {
    const clock = new FakeClock()
    const pace = new ChangeRateLimiter(clock)
    const limit = quota({ records, changes })
    const burst = Math.max(records, 10 * changes)
    let taken = 0
    for (let i = 0; i < 20_000 && clock.monotonic() < 100_000; i += 1) {
      const pauseMs = pace.took(size, limit)
      taken += size
      t.ok(pauseMs <= 2000 + 1e-6 || size > ChangeRateLimiter.groupSize(limit), `${changes}: no pause of ${pauseMs} ms`)
      if (pauseMs > 0) await clock.advance(pauseMs)
    }
    const seconds = clock.monotonic() / 1000
    t.ok(taken <= burst + changes * seconds + size, `${changes} a second: ${taken} in ${seconds} s`)
    t.ok(taken >= Math.min(burst, 20_000 * size), 'and no fewer than the burst')
  }
})

t.test('a smaller quota does not hold against a member what it took under a larger one', async (t) => {
  const clock = new FakeClock()
  const pace = new ChangeRateLimiter(clock)
  t.equal(pace.took(40_000, quota({})), 0)
  const pauseMs = pace.took(1, quota({ records: 10, changes: 10 }))
  t.ok(pauseMs <= 2200, `${pauseMs} ms`)
})

function report(records: number, change: Partial<QuotaReport> = {}): QuotaReport {
  return { limit: quota({ records: 10 }), used: { records, bytes: 0 }, isSlowed: false, ...change }
}

t.test('a member hears of its quota at first, and of more room only when something may wait for it', async (t) => {
  const news = new QuotaNews()
  t.same(news.next(report(5)), report(5), 'at first')
  t.equal(news.next(report(3)), undefined, 'it has room, and nothing waits')
  t.equal(news.next(report(10)), undefined)
  t.same(news.next(report(9)), report(9), 'it was full: something may wait')
  t.equal(news.next(report(10)), undefined)
  t.equal(news.next(report(10)), undefined)
  t.same(news.next(report(8)), report(8))
  t.equal(news.next(report(7)), undefined, 'it had room when it heard last')
  news.refused([report(7)])
  t.equal(news.next(report(7)), undefined, 'what was refused at this room would be so again')
  t.same(news.next(report(6)), report(6))
})

t.test('room that came before the refusal was known is told all the same', async (t) => {
  const news = new QuotaNews()
  t.same(news.next(report(10)), report(10))
  t.same(news.next(report(8)), report(8), 'removed in the same group as the refusal')
  news.refused([report(10), report(8)])
  t.same(news.next(report(8)), report(8), 'the refusal went out after that report')
  t.equal(news.next(report(8)), undefined)
})

t.test('limits and slowing down are news at once, and once', async (t) => {
  const news = new QuotaNews()
  news.next(report(5))
  const slowed = report(5, { isSlowed: true })
  t.same(news.next(slowed), slowed)
  t.equal(news.next(report(6, { isSlowed: true })), undefined)
  t.same(news.next(report(6)), report(6))
  const raised = report(6, { limit: quota({ records: 20 }) })
  t.same(news.next(raised), raised)
  t.equal(news.next(raised), undefined)
})

t.test('what is made for one member alone: a few times everything, then at a rate', async (t) => {
  const clock = new FakeClock()
  const pace = new SnapshotRateLimiter(clock)
  const [milano, paris, tokyo] = ['milano', 'paris', 'tokyo'] as ClusterId[] as [ClusterId, ClusterId, ClusterId]
  t.equal(pace.takes(milano, 100_000, 500), 0)
  t.equal(pace.takes(milano, 1000, 500), 100)
  t.equal(pace.takes(paris, 100_000, 500), 0, 'each has its own')
  t.equal(pace.takes(tokyo, 250_000, 126_000), 0, 'twice all that there is')
  t.equal(pace.takes(tokyo, 12_000, 126_000), 1000)
  await clock.advance(100)
  t.equal(pace.takes(milano, 0, 500), 0, 'the pause was enough')
  t.equal(pace.takes(milano, 1_000_000, 500), 5000, 'nobody waits for longer at once')
  await clock.advance(3_600_000)
  t.equal(pace.takes(milano, 100_000, 500), 0)
  const names = new Set(['a', 'b', 'c'])
  t.equal(startCost({ namespaces: names, missing: new Set() }), 1003)
  t.equal(startCost(undefined), 1000)
})
