/** The timeline: what has changed from look to look, and that what was not read has not changed. */
import t from 'tap'
import { planEvents } from '../../console/state/plan-events.ts'
import { type PlannedState, planLook } from '../../console/state/state.ts'
import { DOWN, changeLinks } from '../explain/broken-member.ts'
import { type Change, consoleFacts, withSilent } from './support/console-facts.ts'

function at(time: string, change?: Change) {
  const facts = consoleFacts(change === undefined ? {} : { change })
  return { ...facts, facts: { ...(facts.facts as object), takenAt: time } }
}

function linesOf({ state: { events } }: PlannedState): string[] {
  return events.rows.map((row) => `${row.at.slice(11, 19)} ${row.kind} ${row.change} ${row.subject}`)
}

const [ONE, TWO, THREE] = ['2026-11-25T12:00:00Z', '2026-11-25T12:00:02Z', '2026-11-25T12:00:04Z']
const PARIS_DOWN: Change = (objects) => changeLinks(objects, ({ cluster }) => cluster === 'paris', DOWN)

t.test('links go down and come back, and problems begin and end', async (t) => {
  const first = planLook(at(ONE))
  t.same([linesOf(first), first.state.events.note], [[], `Nothing has changed since this console started at ${ONE}.`])
  const down = planLook(at(TWO, PARIS_DOWN), first)
  t.same(linesOf(down), [
    '12:00:02 problem begins ClusterCutOff: Cluster paris',
    '12:00:02 link down gw0 lane 0 to paris lane 0',
    '12:00:02 link down gw1 lane 1 to paris lane 0',
    '12:00:02 link down gw0 lane 0 to paris lane 1',
    '12:00:02 link down gw1 lane 1 to paris lane 1',
  ])
  t.equal(down.state.events.note, `Since this console started at ${ONE}.`)
  const back = planLook(at(THREE), down)
  t.same(linesOf(back).slice(0, 2), [
    '12:00:04 problem ends ClusterCutOff: Cluster paris',
    '12:00:04 link up gw0 lane 0 to paris lane 0',
  ])
  t.equal(back.state.events.rows.length, 10, 'earlier events stay')
})

t.test('a gateway becomes a standby, and imports appear and disappear', async (t) => {
  const first = planLook(at(ONE))
  const changed = planLook(
    at(TWO, (objects) => {
      const [gateway] = objects('Gateway')
      const status = (gateway as { status?: { lanes: unknown[]; connections: unknown[] } } | undefined)?.status
      Object.assign(status ?? {}, { lanes: [], connections: [] })
      for (const service of objects('ServiceImport')) service.metadata.name = 'api'
    }),
    first,
  )
  const lines = linesOf(changed)
  t.ok(lines.includes('12:00:02 gateway standby gw0'), lines.join('\n'))
  t.ok(lines.includes('12:00:02 import appears shop/api'))
  t.ok(lines.includes('12:00:02 import disappears shop/web0'))
  t.ok(lines.some((line) => /link gone gw0 lane 0 to/.test(line)))
})

t.test('the page of one pod is silent: other problems end, and its own last', async (t) => {
  const first = planLook(at(ONE, PARIS_DOWN))
  const own = new Map([
    ['StorageFull: Pod sealane-agent-0', 'pod sealane-agent-0'],
    ['StorageFull: Pod sealane-agent-1', 'pod sealane-agent-1'],
    ['VersionSkew: Cluster milano', 'the parts themselves'],
  ])
  const before = { ...first, seen: { ...first.seen, problems: new Map([...(first.seen.problems ?? []), ...own]) } }
  const facts = withSilent(at(ONE), [], TWO)
  const set = facts.facts as { facts: readonly object[] }
  const fact = {
    ...{ t: 'unanswered', what: 'Pod sealane-agent-0', source: 'API server, for the pod', at: TWO, needed: false },
    ...{ reason: 'NotAnswered', message: 'no answer within 5s' },
  }
  const look = planLook({ ...facts, facts: { ...set, facts: [...set.facts, fact] } }, before)
  t.same(
    linesOf(look)
      .filter((line) => line.includes('problem ends'))
      .sort(),
    ['12:00:02 problem ends ClusterCutOff: Cluster paris', '12:00:02 problem ends StorageFull: Pod sealane-agent-1'],
  )
})

t.test('what was not read has not changed, and no problem ends without an answer', async (t) => {
  const first = planLook(at(ONE, PARIS_DOWN))
  const silent = planLook(withSilent(at(ONE), ['Gateway', 'ServiceImport'], TWO), first)
  t.same(
    linesOf(silent).filter((line) => !line.includes('NotAnswered')),
    [],
  )
  const again = planLook(at(THREE, PARIS_DOWN), silent)
  t.same(
    linesOf(again).filter((line) => !line.includes('NotAnswered')),
    [],
  )
})

t.test('a file of facts has no events', async (t) => {
  const facts = { ...at(ONE), live: false }
  const later = planLook({ ...facts, ...at(TWO, PARIS_DOWN), live: false }, planLook(facts))
  t.same(linesOf(later), [])
  t.match(later.state.events.note, /nothing changes in it/)
})

t.test('many changes at once are counted, and events are bounded', async (t) => {
  const names = (n: number, state: string): ReadonlyMap<string, string> =>
    new Map(Array.from({ length: n }, (_, i) => [`l${i}`, state]))
  const all = planEvents({ links: names(2000, 'up') }, { links: names(2000, 'down') }, ONE)
  t.equal(all.length, 30)
  t.match(all.at(-1), { change: 'more', subject: '1971 more at this time' })
  let look = planLook(at(ONE))
  for (let i = 0; i < 50; i += 1) look = planLook(at(TWO, i % 2 === 0 ? PARIS_DOWN : undefined), look)
  t.equal(look.state.events.rows.length, 200)
  t.ok(look.state.events.more > 0)
})

t.test('a severity that changes is no event, a new subject is', async (t) => {
  const before = { problems: new Map([['a', 'degraded']]), gateways: new Map([['gw0', 'active']]) }
  const now = {
    problems: new Map([['a', 'down']]),
    gateways: new Map([
      ['gw0', 'silent'],
      ['gw1', 'starting'],
    ]),
  }
  t.same(
    planEvents(before, now, ONE).map(({ change, subject }) => `${change} ${subject}`),
    ['silent gw0', 'starting gw1'],
  )
  t.same(planEvents(undefined, now, ONE), [], 'the first look sees no change')
})
