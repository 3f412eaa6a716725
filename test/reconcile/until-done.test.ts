/** Work that is retried until it is done. */
import t from 'tap'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { untilDone } from '../../reconcile/retry.ts'

/** Work that notes the time of each attempt, and fails or waits as `one` does. */
function start(one: (tryNumber: number, signal: AbortSignal, clock: FakeClock) => Promise<void>) {
  const clock = new FakeClock()
  const stop = new AbortController()
  const tries: number[] = []
  const failures: string[] = []
  const work = (): Promise<void> => {
    tries.push(clock.monotonic())
    return one(tries.length, stop.signal, clock)
  }
  const onFailure = (error: unknown): void => void failures.push((error as Error).message)
  const run = (): Promise<boolean> =>
    untilDone(work, { clock, backoff: { minMs: 100, maxMs: 400 }, onFailure }, stop.signal)
  return { clock, stop, tries, failures, run }
}

t.test('what works is done once', async (t) => {
  const s = start(async () => undefined)
  t.equal(await s.run(), true)
  t.same(s.tries, [0])
  t.same(s.failures, [])
})

t.test('what fails is told and tried again, with pauses that grow to a bound', async (t) => {
  const s = start(async (number) => {
    if (number <= 4) throw new Error(`failure ${number}`)
  })
  const done = s.run()
  await s.clock.advance(2000)
  t.equal(await done, true)
  t.same(s.failures, ['failure 1', 'failure 2', 'failure 3', 'failure 4'])
  const pauses = s.tries.slice(1).map((at, i) => at - (s.tries[i] ?? 0))
  for (const [i, full] of [100, 400, 400, 400].entries()) {
    t.ok((pauses[i] ?? 0) >= full / 2 && (pauses[i] ?? 0) <= full, pauses.join())
  }
})

t.test('work that throws before its first await has failed too', async (t) => {
  const s = start((number) => {
    if (number === 1) throw new Error('at once')
    return Promise.resolve()
  })
  const done = s.run()
  await s.clock.advance(100)
  t.equal(await done, true)
  t.same(s.failures, ['at once'])
})

t.test('the signal ends a pause', async (t) => {
  const s = start(() => Promise.reject(new Error('away')))
  const done = s.run()
  await s.clock.advance(0)
  s.stop.abort(new Error('stop'))
  t.equal(await done, false)
  t.same(s.tries, [0])
  t.same(s.failures, ['away'])
  t.same(s.clock.pending(), [])
})

t.test('work that the signal ends has not failed', async (t) => {
  const s = start((_number, signal, clock) => clock.sleep(1000, signal))
  const done = s.run()
  await s.clock.advance(10)
  s.stop.abort(new Error('stop'))
  t.equal(await done, false)
  t.same(s.failures, [])
})

t.test('work that ends well all the same is done', async (t) => {
  const s = start((_number, _signal, clock) => clock.sleep(1000, new AbortController().signal))
  const done = s.run()
  s.stop.abort(new Error('stop'))
  await s.clock.advance(1000)
  t.equal(await done, true)
})

t.test('with a signal that came before, nothing is tried', async (t) => {
  const s = start(async () => undefined)
  s.stop.abort(new Error('stop'))
  t.equal(await s.run(), false)
  t.same(s.tries, [])
})
