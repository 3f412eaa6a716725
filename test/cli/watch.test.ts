/** The repetition of a command with `--watch`. */
import t from 'tap'
import { lookAgain } from '../../cli/commands/status.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'

t.test('a look that fails is named, an interrupted one is not, and then it ends', async (t) => {
  const clock = new FakeClock()
  const stop = new AbortController()
  const remarks: string[] = []
  const output = { answer: () => undefined, remark: (text: string) => void remarks.push(text) }
  const looks = [
    () => Promise.resolve(),
    () => Promise.reject(new Error('no answer within 30s')),
    () => Promise.resolve(),
    () => {
      stop.abort(new Error('interrupted'))
      return Promise.reject(new Error('interrupted before it was complete'))
    },
  ]
  let count = 0
  const watched = lookAgain({ signal: stop.signal, output }, () => looks[count++]!(), clock)
  t.equal(count, 0, 'who has just looked waits first')
  for (const _ of looks) await clock.advance(2000)
  await watched
  t.equal(count, 4)
  t.same(remarks, ['no answer within 30s\n'])
})

t.test('interrupted while it waits', async (t) => {
  const stop = new AbortController()
  const output = { answer: () => undefined, remark: () => undefined }
  const looks: string[] = []
  const look = () => Promise.resolve(void looks.push('look'))
  const watched = lookAgain({ signal: stop.signal, output }, look, new FakeClock())
  stop.abort(new Error('interrupted'))
  await watched
  t.same(looks, [])
})
