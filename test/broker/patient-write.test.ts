/**
 * Writes that wait for the store: each is made once the store accepts it, and a failure that hits all of them is
 * reported as one.
 */
import t from 'tap'
import { type RecordLog, StateError } from '../../broker/store/record-log.ts'
import { writePatiently } from '../../broker/sessions/rate-limited-writes.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'

t.test('three hundred writes that fail together are counted and logged once, and all are made later', async (t) => {
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  let failures = 0
  let problem: StateError | undefined = new StateError('Full', 'here', 'here: no space')
  const transact: RecordLog['transact'] = (decide) =>
    problem === undefined ? Promise.resolve(decide(undefined as never)) : Promise.reject(problem)
  const deps = {
    log: { transact } as RecordLog,
    clock,
    logger,
    metrics: { commitFailures: { inc: () => (failures += 1) } },
  }
  const { signal } = new AbortController()
  const done = Array.from({ length: 300 }, (_, i) => writePatiently(deps as never, () => i, signal))
  await clock.advance(0)
  t.equal(failures, 1)
  t.equal(logger.lines.length, 1)
  await clock.advance(1000)
  t.equal(failures, 2, 'the next commit is another one, of the same error')
  problem = new StateError('Full', 'here', 'here: no space')
  await clock.advance(1000)
  t.equal(failures, 3, 'and of another one')
  problem = undefined
  await clock.advance(1000)
  t.same(
    await Promise.all(done),
    Array.from({ length: 300 }, (_, i) => i),
  )
  t.equal(failures, 3)
})
