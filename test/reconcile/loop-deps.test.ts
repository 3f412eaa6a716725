/** What loops report about their runs. */
import t from 'tap'
import { loopDeps } from '../../gateway/world/deps.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { type LoopRun, reportedLoop } from '../../runtime/component.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'

t.test('a failed run is logged under the name of its loop, and every run is counted', async (t) => {
  const logger = new CapturingLogger()
  const runs: LoopRun[] = []
  const deps = reportedLoop({ clock: new FakeClock(), logger, loop: 'routes', count: (run) => void runs.push(run) })
  deps.onError(new Error('no route to host'))
  deps.onRun?.({ ok: false, ms: 12 })
  t.match(logger.lines, [
    {
      level: 'error',
      message: 'a round failed; retrying',
      fields: { loop: 'routes', reason: 'RoundFailed', why: 'no route to host' },
    },
  ])
  t.same(runs, [{ loop: 'routes', ok: false, ms: 12 }])
})

t.test('a gateway that tries again each second tells a failure once, until it is another', async (t) => {
  const logger = new CapturingLogger()
  const deps = loopDeps({ clock: new FakeClock(), logger }, 'lanes')
  for (const text of ['busy', 'busy', 'gone', 'gone']) deps.onError(new Error(text))
  t.same(deps.failure, { message: 'gone', reason: 'RoundFailed' })
  deps.onRun?.({ ok: true, ms: 1 })
  t.equal(deps.failure, undefined)
  deps.onError(new Error('gone'))
  t.same(
    logger.lines.map(({ fields }) => fields['why']),
    ['busy', 'gone', 'gone'],
  )
})
