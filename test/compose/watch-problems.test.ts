/** The agent counts as problems what `sealane status` reports, with the same codes, from the objects in its memory. */
import t from 'tap'
import { problemMetrics } from '../../compose/problems/problem-metrics.ts'
import { MOST_SUBJECTS, showProblems, watchProblems } from '../../compose/problems/watch-problems.ts'
import type { RankedFinding } from '../../explain/facts/finding.ts'
import { MemoryApi } from '../../kubeapi/memory/memory-api.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../runtime/component.ts'
import { NOW, healthyObjects } from '../support/objects/member-facts.ts'
import { eventually } from '../support/eventually.ts'

/** Returns the series of a metric without their constant parts, sorted: `code="X",severity="down" 1`. */
async function series(metrics: ReturnType<typeof createMetrics>, name: string): Promise<readonly string[]> {
  const lines = (await metrics.text()).split('\n').filter((line) => line.startsWith(`${name}{`))
  return lines
    .map((line) =>
      line
        .slice(name.length)
        .replace(/,?component="\w+"/, '')
        .replace(/[{}]/g, ''),
    )
    .sort()
}

function stage() {
  const clock = new FakeClock({ now: Date.parse(NOW) })
  const api = new MemoryApi({ clock })
  const deps = { api, clock, logger: new CapturingLogger(), metrics: createMetrics('agent'), status: new StatusBoard() }
  const put = (objects: ReturnType<typeof healthyObjects>): void => {
    for (const items of Object.values(objects)) {
      for (const object of items as Parameters<typeof api.put>[0][]) api.put(object)
    }
  }
  return { clock, api, deps, put }
}

t.test('a healthy member has none; a link that is down is one, and ends', async (t) => {
  const { clock, api, deps, put } = stage()
  // The agent does not follow the kinds that are left out here.
  const { Pod: _pods, Deployment: _deployments, DaemonSet: _sets, Lease: _lease, ...followed } = healthyObjects()
  const { NetworkPolicy: _policies, ...objects } = followed
  put(objects)
  const stop = new AbortController()
  const done = watchProblems(deps, stop.signal)
  const heard = (): void => {
    const heartbeatTime = new Date(clock.now()).toISOString()
    for (const gateway of api.cache('Gateway').list())
      api.put({ ...gateway, status: { ...gateway.status!, heartbeatTime } })
  }
  const becomes = async (want: readonly string[]): Promise<void> => {
    let last: readonly string[] = []
    await eventually(async () => {
      heard()
      await clock.advance(15_000)
      last = await series(deps.metrics, 'sealane_member_problems')
      return JSON.stringify(last) === JSON.stringify(want)
    }).catch(() => undefined)
    t.same(last, want)
  }
  await becomes([])
  await eventually(async () => {
    heard()
    await clock.advance(15_000)
    return deps.status.reports()['imports'] !== undefined
  })
  t.match(deps.status.reports(), { imports: { withoutBackends: 0, at: /^2026-11-25T1/ } })
  const [first] = api.cache('Gateway').list()
  const whole = first!
  for (let round = 0; round < 3; round += 1) {
    const connections = whole.status!.connections.map((one) =>
      one.cluster === 'paris' && one.remoteLane === 0 ? { ...one, state: 'down' as const, message: 'no answer' } : one,
    )
    api.put({ ...whole, status: { ...whole.status!, connections } })
    await becomes(['code="LaneProbeTimeout",severity="degraded" 1'])
    t.same((await series(deps.metrics, 'sealane_member_problem_subject')).length, 1)
    api.put(whole)
    await becomes([])
  }
  stop.abort()
  await done
  t.equal(deps.status.reports()['imports'], undefined, 'an agent that acts no more says nothing')
  t.same(deps.logger.messages('error'), [])
})

t.test('many are counted, and a few are named, the worst first', async (t) => {
  const registry = createMetrics('agent')
  const metrics = problemMetrics(registry)
  const finding = (i: number): RankedFinding => ({
    reason: i < 5 ? 'ClusterCutOff' : 'Failed',
    severity: i < 5 ? 'down' : 'degraded',
    subject: i < 5 ? { kind: 'Cluster', name: `c${i}` } : { kind: 'ServiceExport', namespace: 'shop', name: `web${i}` },
    seen: 'x',
    source: 'x',
    at: NOW,
    mend: 'x',
    areas: [],
    consequences: [],
  })
  for (const count of [1000, 3, 1000]) {
    showProblems(
      metrics,
      Array.from({ length: count }, (_, i) => finding(i)),
    )
    const named = await series(registry, 'sealane_member_problem_subject')
    t.equal(named.length, Math.min(count, MOST_SUBJECTS))
    t.equal(named.filter((line) => line.includes('"ClusterCutOff"')).length, Math.min(count, 5))
  }
  t.same(await series(registry, 'sealane_member_problems'), [
    'code="ClusterCutOff",severity="down" 5',
    'code="Failed",severity="degraded" 995',
  ])
  showProblems(metrics, [])
  t.same(await series(registry, 'sealane_member_problems'), [])
  t.same(await series(registry, 'sealane_member_problem_subject'), [])
})
