/** Flows: samples, what was refused by rule, calls by service; bounded and printable. */
import t from 'tap'
import { type FlowFact, type FlowsFacts, planLook } from '../../console/state/state.ts'
import { NOW } from '../support/objects/member-facts.ts'
import { consoleFacts } from './support/console-facts.ts'

function line(i: number, change: Partial<FlowFact> = {}): FlowFact {
  const at = new Date(Date.parse(NOW) + i).toISOString()
  const ends = { from: { address: '10.42.1.5', namespace: 'shop', pod: 'web-1' }, to: { address: '244.1.0.5' } }
  return { at, outcome: 'answered', protocol: 'tcp', port: 8080, ...ends, ...change }
}

function flowsOf(change: Partial<FlowsFacts>) {
  const value: FlowsFacts = { lines: [], calls: [], sampled: 20, problems: [], ...change }
  return planLook({ ...consoleFacts(), flows: { t: 'known', at: NOW, value } }).state
}

t.test('refusals by rule, from all samples, and the latest 200', async (t) => {
  const lines = [
    ...Array.from({ length: 500 }, (_, i) => line(i)),
    ...Array.from({ length: 3 }, (_, i) => line(i, { outcome: 'denied', reason: 'access-not-exported', node: 'w0' })),
    line(900, { outcome: 'refused', reason: 'CallRefused' }),
    line(901, { outcome: 'unanswered', reason: 'CallUnanswered' }),
  ]
  const { flows, refusals, times } = flowsOf({ lines })
  t.same([flows.rows.length, flows.more, flows.rows[0]?.outcome], [200, 305, 'unanswered'])
  t.same(
    refusals.rows.map(({ outcome, reason, count, latest }) => [outcome, reason, count, latest.slice(20)]),
    [
      ['denied', 'access-not-exported', 3, '002Z'],
      ['refused', 'CallRefused', 1, '900Z'],
    ],
    'also those that the samples have no place for',
  )
  t.match(flows.rows[1], { from: '10.42.1.5 shop/web-1', to: '244.1.0.5', protocol: 'tcp', port: 8080 })
  t.equal(flows.note, 'Samples: at most 20 calls a second of each node.')
  t.equal(times.flows, NOW)
  t.same([flows.command, refusals.command], ['sealane flows --context c1', 'sealane flows --denied --context c1'])
})

t.test('calls of services, and what nodes could not count', async (t) => {
  const recent = { refused: 6, unanswered: 1, opened: 120, answered: 113, sentBytes: 1, receivedBytes: 1 }
  const calls = [{ name: 'shop/web', callsPerSecond: 2, bytesPerSecond: 200, recent, p50Ms: 1.5 }]
  const found = flowsOf({ calls, problems: ['node w1: no answer', ...Array.from({ length: 9 }, () => 'x')] })
  t.same(found.calls.rows, [
    { service: 'shop/web', callsPerSecond: 2, bytesPerSecond: 200, refused: 6, unanswered: 1, p50Ms: 1.5 },
  ])
  t.match(found.calls.note, /^node w1: no answer x x x x and 5 more$/)
  t.match(found.flows.note, /^No calls\. Samples: .* node w1: no answer/)
  t.equal(found.calls.command, 'sealane top services --context c1')
})

t.test('a source without calls says why', async (t) => {
  const { flows, calls, refusals, times } = planLook(consoleFacts()).state
  for (const { rows, note } of [flows, calls, refusals]) t.same([rows, note], [[], 'No calls are read here.'])
  t.equal(times.flows, undefined)
  const why = planLook({ ...consoleFacts(), flows: { t: 'none', why: 'x\u001b[2J' } }).state
  t.equal(why.flows.note, 'x?[2J')
})

t.test('a rarely called service with errors comes before busy ones', async (t) => {
  const calls = Array.from({ length: 300 }, (_, i) => ({
    ...{ name: `shop/s${i}`, callsPerSecond: 300 - i, bytesPerSecond: 1 },
    recent: { refused: i === 299 ? 1 : 0, unanswered: i === 298 ? 1 : 0 },
  }))
  const { rows, more } = flowsOf({ calls }).calls
  t.same(
    rows.slice(0, 4).map(({ service }) => service),
    ['shop/s298', 'shop/s299', 'shop/s0', 'shop/s1'],
  )
  t.equal(more, 100)
})

t.test('calls that could not be renewed say so', async (t) => {
  const value: FlowsFacts = { lines: [line(0)], calls: [], sampled: 20, problems: [] }
  const known = { t: 'known', at: NOW, why: 'no answer\u001b[2J' } as const
  const facts = { ...consoleFacts(), flows: { ...known, value }, denied: { ...known, value: [] } }
  const { flows, refusals, calls, denied } = planLook(facts).state
  for (const { stale } of [flows, refusals, calls, denied]) t.same(stale, { at: NOW, why: 'no answer?[2J' })
  t.equal(flowsOf({}).flows.stale, undefined)
})

t.test('hostile samples: short, printable, and few', async (t) => {
  const bad = `<img src=x>\u001b[2J\u202e${'n'.repeat(1 << 16)}`
  const ends = { from: { address: bad, pod: bad }, to: { address: bad, service: bad, cluster: bad } }
  const lines = Array.from({ length: 1000 }, (_, i) => line(i, { outcome: 'denied', reason: `${i}${bad}`, ...ends }))
  const calls = Array.from({ length: 3000 }, () => {
    return { name: bad, callsPerSecond: 1, bytesPerSecond: 1, recent: { refused: 0, unanswered: 0 } }
  })
  const { flows, refusals, calls: called } = flowsOf({ lines, calls, problems: [bad] })
  t.same([flows.rows.length, refusals.rows.length, called.rows.length], [200, 100, 200])
  const text = JSON.stringify([flows, refusals, called])
  t.notMatch(text, /\\u001b|\u202e/)
  t.ok(text.length < 500_000, String(text.length))
})
