/** The metrics name the code of the error that keeps the broker from using its store. */
import t from 'tap'
import { StateError } from '../../../broker/store/record-log.ts'
import { StoreProblem } from '../../../broker/store/store-health.ts'
import { brokerMetrics } from '../../../broker/config/broker-metrics.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'

function stage() {
  const clock = new FakeClock()
  const metrics = createMetrics('broker')
  const problem = new StoreProblem({ clock, metrics: brokerMetrics(metrics) })
  const text = async (name: string): Promise<readonly string[]> =>
    (await metrics.text()).split('\n').filter((line) => line.startsWith(name))
  /** Returns the codes that hold at the moment. */
  const codes = async (): Promise<readonly string[]> =>
    (await text('sealane_broker_store_problem{'))
      .filter((line) => line.endsWith(' 1'))
      .map((line) => /code="(\w+)"/.exec(line)?.[1] ?? '')
      .sort()
  return { clock, problem, text, codes }
}

const error = (code: 'Unreachable' | 'Full' | 'Unwritable' | 'Locked'): StateError => new StateError(code, 'x', 'x')

t.test('what cannot be read is over with the next look, also where a write failed of it', async (t) => {
  const { problem, codes } = stage()
  for (let round = 0; round < 3; round += 1) {
    problem.failed(error('Unreachable'))
    problem.looked(error('Unreachable'))
    t.same(await codes(), ['StateUnreachable'])
    problem.looked(undefined)
    t.same(await codes(), [])
  }
})

t.test('a store that is full may be read: only a commit ends it', async (t) => {
  const { problem, codes } = stage()
  for (const [code, name] of [
    ['Full', 'StateFull'],
    ['Unwritable', 'StateUnwritable'],
    ['Full', 'StateFull'],
  ] as const) {
    problem.failed(error(code))
    problem.looked(undefined)
    t.same(await codes(), [name])
    problem.looked(error('Unreachable'))
    t.same(await codes(), [name, 'StateUnreachable'].sort())
    problem.looked(undefined)
    problem.begins()
    problem.wrote(1)
    t.same(await codes(), [])
  }
})

t.test('one problem takes the place of another, and what has no name is StateFailed', async (t) => {
  const { problem, codes } = stage()
  problem.failed(error('Locked'))
  problem.failed(error('Full'))
  t.same(await codes(), ['StateFull'])
  problem.failed(new Error('what is this'))
  t.same(await codes(), ['StateFailed'])
})

t.test('commits are timed from their begin', async (t) => {
  const { clock, problem, text } = stage()
  for (const ms of [10, 300, 3000]) {
    problem.begins()
    await clock.advance(ms)
    problem.wrote(2)
  }
  t.match((await text('sealane_broker_commit_seconds_count')).join(), / 3$/)
  t.match((await text('sealane_broker_commit_seconds_sum')).join(), / 3\.31$/)
  t.match((await text('sealane_broker_commit_changes_sum')).join(), / 6$/)
})
