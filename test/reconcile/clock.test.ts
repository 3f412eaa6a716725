import { spawn } from 'node:child_process'
import { once } from 'node:events'
import t from 'tap'
import { SystemClock } from '../../reconcile/clock.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { clockCompliance } from '../compliance/clock.ts'

t.test('system clock', async (t) => {
  clockCompliance(t, () => ({
    clock: new SystemClock(),
    pass: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  }))
})

t.test('fake clock', async (t) => {
  clockCompliance(t, () => {
    const clock = new FakeClock()
    return { clock, pass: (ms) => clock.advance(ms) }
  })
})

t.test('advance fires what falls due on the way, also what that starts in turn', async (t) => {
  const clock = new FakeClock({ now: 1000 })
  const seen: string[] = []
  const tick = async (): Promise<void> => {
    for (const name of ['one', 'two', 'three']) {
      await clock.sleep(10, new AbortController().signal)
      seen.push(`${name} at ${clock.now()}`)
    }
  }
  const ticking = tick()
  clock.setTimer(15, () => seen.push(`timer at ${clock.now()}`))
  t.same(clock.pending(), [10, 15])
  t.same(clock.pending('timer'), [15])
  await clock.advance(25)
  t.same(seen, ['one at 1010', 'timer at 1015', 'two at 1020'])
  t.equal(clock.now(), 1025)
  t.same(clock.pending('sleep'), [5])
  await clock.advance(5)
  await ticking
  t.same(clock.pending(), [])
})

t.test('an aborted sleep is no longer pending; the wall clock moves alone; the seed decides chance', async (t) => {
  const clock = new FakeClock({ seed: 7 })
  const stop = new AbortController()
  const sleeping = clock.sleep(10, stop.signal)
  stop.abort(new Error('enough'))
  await t.rejects(sleeping, { message: 'enough' })
  t.same(clock.pending(), [])
  clock.setWallClock(5)
  t.equal(clock.now(), 5)
  t.equal(clock.monotonic(), 0)
  const again = new FakeClock({ seed: 7 })
  t.same([clock.random(), clock.random()], [again.random(), again.random()])
})

t.test('an answer that came in time is read before its deadline passes, where this process stood still', async (t) => {
  const clock = new SystemClock()
  for (const how of ['fires', 'is cancelled'] as const) {
    const said: string[] = []
    const child = spawn('sh', ['-c', 'sleep 0.1; echo answer'], { stdio: ['ignore', 'pipe', 'ignore'] })
    const cancel = clock.setTimer(300, () => said.push('deadline'))
    child.stdout.on('data', () => {
      said.push('answer')
      if (how === 'is cancelled') cancel()
    })
    await new Promise((resolve) => setImmediate(resolve))
    const until = performance.now() + 700
    while (performance.now() < until);
    await once(child, 'close')
    await new Promise((resolve) => setImmediate(resolve))
    t.same(said, how === 'fires' ? ['answer', 'deadline'] : ['answer'], how)
  }
})

t.test('a deadline passes where nothing else happens', async (t) => {
  const script = `import { createServer } from 'node:net'
import { SystemClock } from ${JSON.stringify(import.meta.resolve('../../reconcile/clock.ts'))}
const silent = createServer().listen(0, '127.0.0.1')
new SystemClock().setTimer(50, () => silent.close())
setTimeout(() => { const until = performance.now() + 200; while (performance.now() < until); }, 20)`
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: 'ignore', timeout: 30_000 })
  t.same(await once(child, 'close'), [0, null])
})
