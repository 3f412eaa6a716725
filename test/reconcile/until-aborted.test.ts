/** Waits that a signal ends. */
import t from 'tap'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { orAborted, unlessAborted, untilAborted, withDeadline } from '../../reconcile/wait.ts'

const STOPPED = new Error('stopped')

t.test('untilAborted resolves with the signal, also with one that came before', async (t) => {
  const stop = new AbortController()
  const order: string[] = []
  const waiting = untilAborted(stop.signal).then(() => order.push('told'))
  await Promise.resolve()
  order.push('abort')
  stop.abort(STOPPED)
  await waiting
  t.same(order, ['abort', 'told'])
  await t.resolves(untilAborted(stop.signal))
})

t.test('unlessAborted tells an action that ended from one that was ended', async (t) => {
  const stop = new AbortController()
  t.equal(await unlessAborted(Promise.resolve(7), stop.signal), true)
  await t.rejects(unlessAborted(Promise.reject(new Error('disk full')), stop.signal), { message: 'disk full' })
  const action = new Promise((_resolve, reject) => {
    stop.signal.addEventListener('abort', () => reject(STOPPED))
  })
  const ended = unlessAborted(action, stop.signal)
  stop.abort(STOPPED)
  t.equal(await ended, false)
  t.equal(await unlessAborted(Promise.resolve(), stop.signal), true, 'it was done before the signal was looked at')
})

t.test('orAborted leaves work that hears no signal', async (t) => {
  const stop = new AbortController()
  t.equal(await orAborted(Promise.resolve('yes'), stop.signal), 'yes')
  await t.rejects(orAborted(Promise.reject(new Error('no')), stop.signal), { message: 'no' })
  const never = orAborted(new Promise(() => undefined), stop.signal)
  stop.abort(STOPPED)
  await t.rejects(never, STOPPED)
  await t.rejects(orAborted(Promise.resolve('late'), stop.signal), STOPPED, 'the signal came before')
  await t.rejects(orAborted(Promise.reject(new Error('late')), stop.signal), STOPPED, 'no failure is left unheard')
})

t.test('withDeadline gives work its time', async (t) => {
  const clock = new FakeClock()
  let seen: AbortSignal | undefined
  const quick = (signal: AbortSignal): Promise<string> => {
    seen = signal
    return Promise.resolve('done')
  }
  t.equal(await withDeadline(clock, 2000, quick), 'done')
  await clock.advance(5000)
  t.equal(seen?.aborted, false, 'the timer ends with the work')

  const slow = withDeadline(clock, 2000, (signal) => untilAborted(signal).then(() => String(signal.reason)))
  await clock.advance(1999)
  await clock.advance(1)
  t.equal(await slow, 'Error: no answer within 2 s')
  await t.rejects(
    withDeadline(clock, 2000, () => Promise.reject(new Error('refused'))),
    { message: 'refused' },
  )
})
