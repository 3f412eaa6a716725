/** A cluster that has just started is not down: for two minutes, what has not come up yet is only a notice. */
import t from 'tap'
import type { Fact } from '../../explain/facts/fact.ts'
import { diagnoseMember } from '../../explain/diagnose-member.ts'
import { NOW, factSet, healthyReports } from '../support/objects/member-facts.ts'
import { DOWN, brokenMember, changeLinks, linesOf } from './broken-member.ts'

/** The reports of parts that started so long ago; undefined leaves the start out of the report. */
const startedFor = (agoMs: (i: number) => number | undefined): readonly Fact[] =>
  healthyReports().map((fact, i) => {
    const ms = agoMs(i)
    return fact.t !== 'report' || ms === undefined ? fact : { ...fact, report: { ...fact.report, startedAt: at(ms) } }
  })
const nowMs = Date.parse(NOW)
const at = (agoMs: number): string => new Date(nowMs - agoMs).toISOString()
/** No gateway and no routeagent has reported. */
const NOTHING_YET = brokenMember((of) => {
  for (const kind of ['Gateway', 'RouteAgent'] as const) of(kind).splice(0, 99)
})
/** Links that do not come up, at gateways that have been ready for this time. */
const connecting = (readyForMs: number) =>
  brokenMember((of) => {
    changeLinks(of, () => true, { ...DOWN, state: 'connecting' })
    for (const { status } of of('Gateway')) {
      const ready = { type: 'Ready', status: 'False', reason: 'LaneConnecting', message: '' }
      status.conditions = [{ ...ready, lastTransitionTime: at(readyForMs) }]
    }
  })

/** The links of one gateway had come up and are lost. */
const lost = brokenMember((of) => {
  changeLinks(of, ({ cluster }) => cluster === 'paris', DOWN)
  changeLinks(of, ({ cluster }) => cluster !== 'paris', { ...DOWN, state: 'connecting' })
  for (const { status } of of('Gateway')) status.conditions = []
})

t.test('what has not come up yet follows from the start', (t) => {
  const rows: readonly (readonly [
    say: string,
    objects: typeof NOTHING_YET,
    startedMs: readonly number[],
    health: string,
  ])[] = [
    ['nothing has reported', NOTHING_YET, [12_000, 3000], 'healthy'],
    ['links do not come up yet', connecting(10_000), [12_000], 'healthy'],
    ['one part runs for longer', NOTHING_YET, [12_000, 121_000], 'down'],
    ['a link that was up is lost', lost, [12_000], 'down'],
    ['after two minutes', NOTHING_YET, [120_000], 'down'],
    ['the gateways run for longer than the agent', connecting(3_600_000), [12_000], 'down'],
    ['a clock that is far ahead is no start', NOTHING_YET, [-3_600_000], 'down'],
    ['nobody says when it started', NOTHING_YET, [], 'down'],
  ]
  for (const [say, objects, startedMs, health] of rows) {
    const started = startedFor((i) => startedMs[i % startedMs.length])
    const found = diagnoseMember(factSet(objects, started))
    t.equal(found.health, health, `${say}: ${linesOf(found.problems).join('; ')}`)
    const lines = linesOf(found.problems).filter((line) => line.startsWith('notice Starting '))
    t.equal(lines.length, health === 'healthy' ? 1 : 0, say)
  }
  t.end()
})

t.test('a fault that is no matter of time stays what it is', (t) => {
  const started = startedFor(() => 5000)
  t.strictSame(
    linesOf(
      diagnoseMember(
        factSet(
          brokenMember(() => undefined),
          started,
        ),
      ).problems,
    ),
    [],
    'nor is a start told',
  )
  const evicted = brokenMember((of) => {
    of('Gateway').splice(0, 99)
    of('Membership').splice(0, 99)
  })
  t.equal(diagnoseMember(factSet(evicted, started)).health, 'down')
  t.end()
})

t.test('what has a cause of its own stays as bad as it is', (t) => {
  const started = startedFor(() => 5000)
  const closed = brokenMember((of) => {
    changeLinks(of, () => true, { ...DOWN, state: 'connecting' })
    for (const { status } of of('Gateway')) status.conditions = []
    const [own] = of('Gateway')
    Object.assign(own?.status ?? {}, { failure: 'UDP port 4500: dnsmasq has it', failureReason: 'PortTaken' })
  })
  const lines = linesOf(diagnoseMember(factSet(closed, started)).problems)
  t.match(lines[0], /^down PortTaken Gateway gw0 /)
  t.notMatch(lines.join(), 'Starting')
  t.end()
})
