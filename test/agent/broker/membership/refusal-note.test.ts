/** The notes about a refused membership reach the Secret in order, and the last one stays. */
import t from 'tap'
import { RefusalNote } from '../../../../agent/membership/refusal.ts'
import { FakeClock } from '../../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../../runtime/logging/capturing-logger.ts'
import { eventually } from '../../../support/eventually.ts'

/** A JoinStore whose writes succeed or fail when the test says so. */
class SlowStore {
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
  const store = new SlowStore()
  const note = new RefusalNote(
    { clock: new FakeClock(), logger: new CapturingLogger() },
    store,
    new AbortController().signal,
  )
  for (const word of ['evicted', 'replaced', undefined]) note.onReason(word)
  t.same(store.asked, ['evicted'])
  await store.end()
  await eventually(() => store.asked.length === 2)
  t.same(store.asked, ['evicted', undefined], 'what was said in between is old')
  await store.end()
  note.onReason('evicted again')
  await eventually(() => store.asked.length === 3)
  t.same(store.asked, ['evicted', undefined, 'evicted again'])
})

t.test('what cannot be written is tried again, until the end', async (t) => {
  const [store, clock, logger, stop] = [new SlowStore(), new FakeClock(), new CapturingLogger(), new AbortController()]
  const note = new RefusalNote({ clock, logger }, store, stop.signal)
  note.onReason('evicted')
  await store.end(new Error('away'))
  await eventually(() => clock.pending('sleep').length > 0)
  t.match(logger.lines, [
    { message: 'cannot store the answer of the broker; retrying', fields: { why: 'Error: away' } },
  ])
  await clock.advance(1000)
  t.same(store.asked, ['evicted', 'evicted'])
  await store.end(new Error('away'))
  await eventually(() => clock.pending('sleep').length > 0)
  stop.abort()
  await clock.advance(10_000)
  t.same(store.asked, ['evicted', 'evicted'])
})
