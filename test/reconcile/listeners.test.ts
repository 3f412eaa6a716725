/** Which listeners are called, also while others are added and removed. */
import t from 'tap'
import { Listeners } from '../../reconcile/listeners.ts'

t.test('each is called in its order, as often as it was added, until it has ended', async (t) => {
  const called: string[] = []
  const listeners = new Listeners<[what: string, times: number]>()
  const note = (what: string, times: number): void => void called.push(`${what}${times}`)
  const stops = [listeners.add(note), listeners.add((what) => called.push(`other ${what}`)), listeners.add(note)]
  listeners.call('a', 1)
  t.same(called.splice(0), ['a1', 'other a', 'a1'])
  stops[0]?.()
  stops[0]?.()
  listeners.call('b', 2)
  t.same(called.splice(0), ['other b', 'b2'], 'the other registration of the same function stays')
  listeners.clear()
  listeners.call('c', 3)
  t.same(called, [])
})

t.test(
  'one that is ended during a call is not called any more, and one that comes is called the next time',
  async (t) => {
    const called: string[] = []
    const listeners = new Listeners()
    listeners.add(() => {
      called.push('first')
      stop()
      if (called.length === 1) listeners.add(() => called.push('late'))
    })
    const stop = listeners.add(() => called.push('ended'))
    listeners.call()
    t.same(called.splice(0), ['first'])
    called.push('x')
    listeners.call()
    t.same(called, ['x', 'first', 'late'])
  },
)
