/** What `sealane explain --watch` prints after the first explanation: what has changed, and nothing else. */
import t from 'tap'
import { pathChanges } from '../../cli/status/path/plan-path-changes.ts'
import type { PathExplanation, PathStep } from '../../explain/path/document.ts'
import type { ProbeDocument } from '../../explain/path/packet-probe.ts'
import { explained } from '../explain/path/two-members.ts'

function withStep(path: PathExplanation, station: PathStep['station'], change: Partial<PathStep>): PathExplanation {
  const steps = path.steps.map((step) =>
    step.station === station && step.direction === 'forward' ? { ...step, ...change } : step,
  )
  return { ...path, steps }
}

t.test('changes', async (t) => {
  const path = explained()
  const { message: linkText = '' } = path.steps.find(({ station }) => station === 'link') ?? {}
  t.match(linkText, /RTT [\d.]+ ms/, 'a measured value')
  const end = { direction: 'forward', station: 'link', cluster: 'paris', message: '-', isExact: true } as const
  const probe: ProbeDocument = {
    ...{ by: 'this machine', isStandIn: false, isCut: false },
    protocol: 'tcp',
    ...{ sourcePort: 21_000, destination: '245.0.0.9', port: 5432 },
    result: 'silent',
    outcome: 'UNREACHABLE',
    ...{ message: 'no answer', end, places: [] },
  }
  const rows: readonly (readonly [
    name: string,
    before: PathExplanation,
    after: PathExplanation,
    expected: readonly string[],
  ])[] = [
    ['nothing', path, { ...path, takenAt: '2027-01-01T00:00:00Z' }, []],
    ['ages', path, { ...path, steps: path.steps.map((step) => ({ ...step, ageSeconds: 77 })) }, []],
    [
      'a measured value',
      path,
      withStep(path, 'link', { message: linkText.replace(/RTT [\d.]+ ms/, 'RTT 99.5 ms') }),
      [],
    ],
    [
      'the outcome',
      path,
      { ...path, outcome: 'UNREACHABLE', message: 'packets end at step 7' },
      ['UNREACHABLE, was REACHABLE: packets end at step 7'],
    ],
    [
      'a decision',
      path,
      withStep(path, 'link', { decision: 'fails', reason: 'LaneProbeTimeout', message: 'none is up' }),
      ['link (milano, to paris): fails (LaneProbeTimeout), was passes: none is up'],
    ],
    ['a node', path, withStep(path, 'node', { node: 'w9', message: 'other' }), ['node (milano, to paris): other']],
    [
      'steps that are not reached any more',
      path,
      { ...path, steps: path.steps.slice(0, -1) },
      ['node (back, milano): the call does not come so far'],
    ],
    ['a probe', { ...path, probe }, { ...path, probe: { ...probe, sourcePort: 22_000 } }, []],
    [
      'what became of a probe',
      { ...path, probe },
      { ...path, probe: { ...probe, result: 'answered', message: 'the called end answers' } },
      ['probe: answered, was silent: the called end answers'],
    ],
  ]
  for (const [name, before, after, expected] of rows) t.strictSame(pathChanges(before, after), expected, name)
})
