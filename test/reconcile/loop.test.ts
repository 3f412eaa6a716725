import fc from 'fast-check'
import t from 'tap'
import { Backoff } from '../../reconcile/retry.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { type LoopInit, ReconcileLoop } from '../../reconcile/loop.ts'

const INIT: LoopInit = { minMs: 10, resyncMs: 1000, retryMinMs: 100, retryMaxMs: 400 }

/** A loop that notes the time of each run; `work` may fail or wait. */
function start(
  work: (run: number, signal: AbortSignal, clock: FakeClock) => Promise<void> = async () => undefined,
  init = INIT,
) {
  const clock = new FakeClock()
  const stop = new AbortController()
  const runs: number[] = []
  const errors: string[] = []
  const results: boolean[] = []
  const deps = {
    clock,
    onError: (error: unknown) => errors.push((error as Error).message),
    onRun: ({ ok }: { ok: boolean }) => results.push(ok),
  }
  const loop = new ReconcileLoop(deps, init, (signal) => {
    runs.push(clock.monotonic())
    return work(runs.length, signal, clock)
  })
  return { clock, stop, runs, errors, results, loop, done: loop.run(stop.signal) }
}

async function end({ stop, clock, done }: ReturnType<typeof start>): Promise<void> {
  stop.abort(new Error('stop'))
  await clock.advance(0)
  await done
}

t.test('runs at once, then every resyncMs', async (t) => {
  const s = start()
  await s.clock.advance(2500)
  t.equal(s.runs.length, 3)
  t.equal(s.runs[0], 0)
  t.ok(
    s.runs.every((at, i) => i === 0 || Math.abs(at - i * 1000) <= 20),
    s.runs.join(),
  )
  await end(s)
})

t.test('pokes coalesce and keep their distance', async (t) => {
  const s = start()
  await s.clock.advance(100)
  for (let i = 0; i < 50; i += 1) s.loop.poke()
  await s.clock.advance(0)
  t.same(s.runs, [0, 100])
  s.loop.poke()
  await s.clock.advance(9)
  t.same(s.runs, [0, 100], 'not before minMs')
  await s.clock.advance(1)
  t.same(s.runs, [0, 100, 110])
  await end(s)
})

t.test('a poke during a run brings one more run, and runs never overlap', async (t) => {
  let running = 0
  let most = 0
  const s = start(async (_run, signal, clock) => {
    running += 1
    most = Math.max(most, running)
    await clock.sleep(50, signal)
    running -= 1
  })
  await s.clock.advance(30)
  s.loop.poke()
  await s.clock.advance(200)
  t.same(s.runs, [0, 50])
  t.equal(most, 1)
  await end(s)
})

t.test('a failed run is told and tried again with growing delays, however much it is poked', async (t) => {
  const s = start(async (run) => {
    if (run <= 3) throw new Error(`failure ${run}`)
  })
  for (let i = 0; i < 50; i += 1) {
    s.loop.poke()
    await s.clock.advance(20)
  }
  t.same(s.errors, ['failure 1', 'failure 2', 'failure 3'])
  const gaps = s.runs.slice(1, 4).map((at, i) => at - (s.runs[i] ?? 0))
  t.ok((gaps[0] ?? 0) >= 50 && (gaps[0] ?? 0) <= 100, gaps.join())
  t.ok((gaps[1] ?? 0) >= 200 && (gaps[1] ?? 0) <= 400, gaps.join())
  t.same(s.results.slice(0, 4), [false, false, false, true])
  await end(s)
})

t.test('where asked for, a poke shortens the delay after a failure, down to a bound', async (t) => {
  const failing = async (): Promise<void> => {
    throw new Error('failure')
  }
  const s = start(failing, { ...INIT, retryMinMs: 400, retryMaxMs: 400, pokedRetryMs: 50 })
  await s.clock.advance(20)
  s.loop.poke()
  await s.clock.advance(29)
  t.same(s.runs, [0], 'not before pokedRetryMs')
  await s.clock.advance(1)
  t.same(s.runs, [0, 50], 'a poke before that time is not lost')
  await s.clock.advance(60)
  t.same(s.runs, [0, 50], 'without one the backoff decides')
  s.loop.poke()
  await s.clock.advance(0)
  t.same(s.runs, [0, 50, 110], 'one after that time is heard at once')
  await s.clock.advance(400)
  t.equal(s.runs.length, 4, 'and without one it is tried again all the same')
  await end(s)
})

t.test('stopping waits for the run under way and tells no error', async (t) => {
  const s = start((_run, signal, clock) => clock.sleep(500, signal))
  await s.clock.advance(10)
  await end(s)
  t.same(s.errors, [])
  t.same(s.clock.pending(), [])
})

t.test('a reconcile that throws before its first await is a failed run too', async (t) => {
  const s = start(() => {
    throw new Error('at once')
  })
  await s.clock.advance(1)
  t.same(s.errors, ['at once'])
  await end(s)
})

t.test('backoff stays within its bounds and starts over after reset', async () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 1000 }),
      fc.integer({ min: 1, max: 60_000 }),
      fc.integer(),
      (minMs, more, seed) => {
        const maxMs = minMs + more
        const backoff = new Backoff(new FakeClock({ seed }), { minMs, maxMs })
        for (let failures = 1; failures < 30; failures += 1) {
          const full = Math.min(maxMs, minMs * failures ** 2)
          const delay = backoff.next()
          if (delay < full / 2 || delay > full) return false
        }
        backoff.reset()
        return backoff.next() <= minMs
      },
    ),
  )
})
