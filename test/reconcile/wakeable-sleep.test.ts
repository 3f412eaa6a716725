/** A sleep that may be ended early. */
import t from 'tap'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { WakeableSleep } from '../../reconcile/wait.ts'

const { signal } = new AbortController()

t.test('it ends when its time is over, and when it is woken, each time anew', async (t) => {
  const clock = new FakeClock()
  const one = new WakeableSleep(clock)
  one.wake()
  for (const round of [1, 2, 3]) {
    const state = { isOver: false }
    const sleeping = one.sleep(100, signal).then(() => (state.isOver = true))
    await clock.advance(99)
    t.notOk(state.isOver, `round ${round}: woken before, it sleeps all the same`)
    await clock.advance(1)
    await sleeping
    const woken = one.sleep(100, signal)
    one.wake()
    await woken
  }
  t.equal(clock.monotonic(), new FakeClock().monotonic() + 300, 'no time passes for those that are woken')
})

t.test('a signal ends it with its reason, also one from before', async (t) => {
  const one = new WakeableSleep(new FakeClock())
  const stop = new AbortController()
  const sleeping = one.sleep(100, stop.signal)
  stop.abort(new Error('over'))
  await t.rejects(sleeping, { message: 'over' })
  await t.rejects(one.sleep(100, stop.signal), { message: 'over' })
})
