/** The suite for every Clock. `pass` lets about this many milliseconds pass, in real time or by moving a fake clock. */
import type { Test } from 'tap'
import type { Clock } from '../../reconcile/clock.ts'

export interface ClockUnderTest {
  readonly clock: Clock
  readonly pass: (ms: number) => Promise<void>
}

export function clockCompliance(t: Test, factory: () => ClockUnderTest): void {
  t.test('monotonic time and the wall clock go on together', async (t) => {
    const { clock, pass } = factory()
    const [wall, monotonic] = [clock.now(), clock.monotonic()]
    await pass(30)
    t.ok(clock.monotonic() - monotonic >= 25)
    t.ok(Math.abs(clock.now() - wall - (clock.monotonic() - monotonic)) < 1000)
    t.ok(clock.now() > Date.parse('2025-01-01T00:00:00Z'))
  })

  t.test('sleep resolves after its time, not before', async (t) => {
    const { clock, pass } = factory()
    const start = clock.monotonic()
    const sleeping = clock.sleep(60, new AbortController().signal).then(() => clock.monotonic())
    await pass(10)
    await pass(100)
    // Node rounds timers to whole milliseconds.
    t.ok((await sleeping) - start >= 59)
  })

  t.test('sleep rejects with the reason of its signal, before and during', async (t) => {
    const { clock, pass } = factory()
    await t.rejects(clock.sleep(1000, AbortSignal.abort(new Error('early'))), { message: 'early' })
    await t.rejects(clock.sleep(1000, AbortSignal.abort('text')), { message: 'aborted' })
    const stop = new AbortController()
    const sleeping = clock.sleep(60_000, stop.signal)
    const rejected = t.rejects(sleeping, { message: 'enough' })
    await pass(5)
    stop.abort(new Error('enough'))
    await rejected
  })

  t.test('timers fire once, in order of their time, unless cancelled', async (t) => {
    const { clock, pass } = factory()
    const fired: string[] = []
    clock.setTimer(40, () => fired.push('late'))
    clock.setTimer(5, () => fired.push('soon'))
    const cancel = clock.setTimer(10, () => fired.push('never'))
    cancel()
    cancel()
    await pass(80)
    await pass(80)
    t.same(fired, ['soon', 'late'])
    t.doesNotThrow(cancel)
  })

  t.test('a time too long for one timer does not fire at once', async (t) => {
    const { clock, pass } = factory()
    let fired = false
    const cancel = clock.setTimer(40 * 24 * 3_600_000, () => (fired = true))
    await pass(20)
    cancel()
    t.equal(fired, false)
  })

  t.test('random numbers lie in [0, 1) and differ', async (t) => {
    const { clock } = factory()
    const numbers = Array.from({ length: 1000 }, () => clock.random())
    t.ok(numbers.every((number) => number >= 0 && number < 1))
    t.ok(new Set(numbers).size > 990)
  })
}
