/** What the broker says of a member reaches the Secret in order, and in the end. */
import t from 'tap'
import { RefusalNote } from '../../../../agent/broker/membership/refusal-note.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../../support/eventually.ts'

/** A desk whose writes end when the test says so, well or not. */
class SlowDesk {
  readonly asked: (string | undefined)[] = []
  #end: ((failure?: Error) => void) | undefined

  problem(problem: { readonly text: string } | undefined): Promise<void> {
    this.asked.push(problem?.text)
    return new Promise((resolve, reject) => {
      this.#end = (failure) => (failure === undefined ? resolve() : reject(failure))
    })
  }

  async end(failure?: Error): Promise<void> {
    const before = this.asked.length
    await eventually(() => this.#end !== undefined, { say: `a write after ${before}`, intervalMs: 1 })
    const end = this.#end
    this.#end = undefined
    end?.(failure)
  }
}

t.test('one write at a time, and the last word wins', async (t) => {
  const desk = new SlowDesk()
  const note = new RefusalNote(
    { clock: new FakeClock(), logger: new CapturingLogger() },
    desk,
    new AbortController().signal,
  )
  for (const word of ['evicted', 'replaced', undefined]) note.hear(word)
  t.same(desk.asked, ['evicted'])
  await desk.end()
  await eventually(() => desk.asked.length === 2)
  t.same(desk.asked, ['evicted', undefined], 'what was said in between is old')
  await desk.end()
  note.hear('evicted again')
  await eventually(() => desk.asked.length === 3)
  t.same(desk.asked, ['evicted', undefined, 'evicted again'])
})

t.test('what cannot be written is tried again, until the end', async (t) => {
  const [desk, clock, logger, stop] = [new SlowDesk(), new FakeClock(), new CapturingLogger(), new AbortController()]
  const note = new RefusalNote({ clock, logger }, desk, stop.signal)
  note.hear('evicted')
  await desk.end(new Error('away'))
  await eventually(() => clock.pending('sleep').length > 0)
  t.match(logger.lines, [{ message: 'what the broker said is not noted yet', fields: { why: 'Error: away' } }])
  await clock.advance(1000)
  t.same(desk.asked, ['evicted', 'evicted'])
  await desk.end(new Error('away'))
  await eventually(() => clock.pending('sleep').length > 0)
  stop.abort()
  await clock.advance(10_000)
  t.same(desk.asked, ['evicted', 'evicted'])
})
