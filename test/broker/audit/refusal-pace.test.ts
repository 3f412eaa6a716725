/** The rate limit on audit lines that callers can cause by refused calls. */
import t from 'tap'
import {
  RefusalRateLimiter,
  type Source,
  accepted,
  copySource,
  memberSource,
  strangerSource,
  tokenSource,
} from '../../../broker/audit/refusal-rate-limiter.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const MINUTE = 60_000
/** The time in which one source regains one line. */
const REFILL = 5 * MINUTE
/** Returns how many of these calls the limiter allows. */
const allowed = (pace: RefusalRateLimiter, source: (i: number) => Source, times: number): number =>
  Array.from({ length: times }, (_, i) => pace.allows(source(i))).filter((ok) => ok).length

t.test('one source: ten, and then one in five minutes', async (t) => {
  const clock = new FakeClock()
  const pace = new RefusalRateLimiter(clock)
  const roma = (): Source => strangerSource('192.0.2.7')
  t.equal(allowed(pace, roma, 50), 10)
  await clock.advance(REFILL)
  t.equal(allowed(pace, roma, 50), 1)
  t.equal(
    allowed(pace, () => strangerSource('192.0.2.8'), 5),
    5,
    'another one has its own',
  )
  t.same(pace.take(), { count: 89, sources: 1, most: ['192.0.2.7: 89'] })
  t.equal(pace.take(), undefined, 'each is reported once')
  await clock.advance(60 * MINUTE)
  t.equal(allowed(pace, roma, 50), 10, 'what was not used is not saved up')
})

t.test('all strangers together: a hundred, and then one a second; others have as much again', async (t) => {
  const clock = new FakeClock()
  const pace = new RefusalRateLimiter(clock)
  const everywhere = (i: number): Source => strangerSource(`10.${i >> 8}.${i & 255}.1`)
  t.equal(allowed(pace, everywhere, 5000), 100)
  await clock.advance(5000)
  t.equal(allowed(pace, everywhere, 5000), 5)
  t.equal(
    allowed(pace, () => tokenSource('4f0c2a9b11'), 3),
    3,
    'a stolen token is not hidden by strangers',
  )
  t.equal(
    allowed(pace, () => memberSource('paris'), 3),
    3,
  )
  const reported = pace.take()
  t.equal(reported?.count, 9895)
  t.equal(reported?.sources, 4096, 'no more are remembered')
  t.equal(reported?.most.length, 8)
})

const names: readonly (readonly [address: string, name: string])[] = [
  ['192.0.2.7', '192.0.2.7'],
  ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
  ['2001:db8:1:2:ffff::1', '2001:db8:1:2::/64'],
  ['x'.repeat(1000), 'x'.repeat(64)],
  ['', ''],
]
t.test('who has an IPv6 address has all of its subnet', async (t) => {
  for (const [address, name] of names) t.equal(strangerSource(address).name, name, address.slice(0, 40))
})

const others: readonly (readonly [say: string, source: Source])[] = [
  ['what a member gets', accepted(memberSource('milano'))],
  ['what a token gets', accepted(tokenSource('4f0c2a9b11'))],
  ['that somebody has a copy of its certificate', copySource('milano')],
]
for (const [say, source] of others) {
  t.test(`no refusals hide ${say}`, (t) => {
    const pace = new RefusalRateLimiter(new FakeClock())
    for (const refused of [memberSource('milano'), tokenSource('4f0c2a9b11')]) allowed(pace, () => refused, 50)
    allowed(pace, (i) => memberSource(`c${i}`), 500)
    allowed(pace, (i) => strangerSource(`10.0.${i}.1`), 250)
    t.notOk(pace.allows(memberSource('another')), 'nobody is refused with a line any more')
    t.equal(
      allowed(pace, () => source, 50),
      10,
    )
    t.end()
  })
}
