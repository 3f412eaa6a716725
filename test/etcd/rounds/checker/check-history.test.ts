/** The checker accepts sound histories, and names the violated rule for each kind of broken history. */
import fc from 'fast-check'
import t from 'tap'
import { checkHistory } from './check-history.ts'
import type { AnyCall, History, Observation, QuietLook, RecordValue } from './history.ts'
import { keyOf, soundHistory, steps } from './sound-history.ts'
import type { Rule } from './violations.ts'

const rulesOf = (history: History): Rule[] => [...new Set(checkHistory(history).map(({ rule }) => rule))]

t.test('what a store without faults does is right, with any refusals and any lost answers', (t) => {
  fc.assert(
    fc.property(steps, (list) => {
      const found = checkHistory(soundHistory(list))
      if (found.length > 0) throw new Error(JSON.stringify(found))
    }),
  )
  t.pass('all')
  t.end()
})

const lookOf = ({ looks }: History): QuietLook => looks[0]!
const withLook = (history: History, change: Partial<QuietLook>): History => ({
  ...history,
  looks: [{ ...lookOf(history), ...change }],
})
/** Changes the records of the store and of all its watchers, so that they still agree. */
function withRecords(history: History, change: (records: Map<string, RecordValue>) => void): History {
  const records = new Map(lookOf(history).records)
  change(records)
  const watchers = lookOf(history).watchers.map((one) => ({ ...one, records }))
  return withLook(history, { records, watchers })
}
const withCalls = (history: History, change: (call: AnyCall) => AnyCall): History => ({
  ...history,
  calls: history.calls.map(change),
})
const lastPut = (history: History, cluster = 0) =>
  history.calls.findLast((call) => call.t === 'put' && call.key === keyOf(cluster, 0))!
const KEY = keyOf(0, 0)

/** Ways to break any history, each with the rule that the checker must name. */
const BREAKS: Readonly<Record<string, readonly [Rule, (history: History) => History]>> = {
  'an acknowledged record is lost': ['record', (h) => withRecords(h, (records) => records.delete(KEY))],
  'an older version is back': [
    'record',
    (h) => withRecords(h, (records) => records.set(KEY, { ...records.get(KEY)!, version: 0 })),
  ],
  'what was withdrawn is back': [
    'record',
    (h) => {
      const put = lastPut(h)
      const remove = { ...put, t: 'remove', version: 10_000, start: put.end, end: put.end + 0.5 } as AnyCall
      return { ...h, calls: [...h.calls, remove] }
    },
  ],
  'what was refused is there': [
    'record',
    (h) => withCalls(h, (call) => (call === lastPut(h) ? { ...call, outcome: 'failed' } : call)),
  ],
  'the records of who was evicted are there': [
    'record',
    (h) => {
      const { end, life, cluster } = lastPut(h) as AnyCall & { life: number; cluster: string }
      const gone: AnyCall = { t: 'end', how: 'evicted', cluster, life, start: end - 0.5, end: end + 0.5, outcome: 'ok' }
      return { ...h, calls: [...h.calls, gone] }
    },
  ],
  'there is what nobody put': [
    'record',
    (h) => withRecords(h, (records) => records.set('c9/ServiceExport/shop/s0', records.get(KEY)!)),
  ],
  'a member is lost': ['member', (h) => withLook(h, { members: lookOf(h).members.slice(1) })],
  'a member has gone by itself': [
    'member',
    (h) => withLook(h, { members: lookOf(h).members.map((one) => ({ ...one, isMember: false })) }),
  ],
  'an evicted one is a member': [
    'member',
    (h) => {
      const { life } = h.calls.findLast((call) => call.t === 'join' && call.cluster === 'c0') as {
        life: number
      } & AnyCall
      const { at } = lookOf(h)
      const gone: AnyCall = { t: 'end', how: 'evicted', cluster: 'c0', life, start: at - 0.5, end: at, outcome: 'ok' }
      return { ...h, calls: [...h.calls, gone] }
    },
  ],
  'a token has let in two': [
    'token',
    (h) => withCalls(h, (call) => (call.t === 'join' ? { ...call, token: 't0' } : call)),
  ],
  'a token was used by two, and only the store says so': [
    'token',
    (h) => withLook(h, { tokens: [{ id: 't0', usesLeft: 0, usedBy: ['c0', 'c1'] }, ...lookOf(h).tokens.slice(1)] }),
  ],
  'a token that let somebody in is unspent': [
    'token',
    (h) => withLook(h, { tokens: lookOf(h).tokens.map((one) => ({ ...one, usesLeft: 1 })) }),
  ],
  'a token is lost': ['token', (h) => withLook(h, { tokens: lookOf(h).tokens.slice(1) })],
  'an index is given twice by word': [
    'index',
    (h) => withCalls(h, (call) => (call.t === 'join' ? { ...call, index: 7 } : call)),
  ],
  'an index is given twice in the store': [
    'index',
    (h) => withLook(h, { members: lookOf(h).members.map((one) => ({ ...one, index: 1 })) }),
  ],
  'a block is given twice': [
    'block',
    (h) => withLook(h, { members: lookOf(h).members.map((one) => ({ ...one, blocks: ['244.9.0.0/16'] })) }),
  ],
  'an address is given to two services': [
    'service address',
    (h) => withRecords(h, (records) => records.set('/ClusterSetIP/shop/other', records.get('/ClusterSetIP/shop/s0')!)),
  ],
  'a watcher misses something': [
    'end state',
    (h) => withLook(h, { watchers: lookOf(h).watchers.map((one) => ({ ...one, records: new Map() })) }),
  ],
  'a watcher has something that is gone': [
    'end state',
    (h) => {
      const more = new Map([...lookOf(h).records, ['c0/ServiceExport/shop/gone', { revision: 1, text: '' }] as const])
      return withLook(h, { watchers: lookOf(h).watchers.map((one) => ({ ...one, records: more })) })
    },
  ],
  'a watcher stands in another epoch': [
    'end state',
    (h) => withLook(h, { watchers: lookOf(h).watchers.map((one) => ({ ...one, epoch: 'other' })) }),
  ],
  'a watcher is shown an earlier revision': ['revision', (h) => shownMore(h, { revision: 0, changes: [] })],
  'a watcher is shown an older version again': [
    'shown',
    (h) => {
      const older = h.calls.find((call) => call.t === 'put' && call.outcome === 'ok') as AnyCall & { key: string }
      const version = (older as { version?: number }).version ?? 0
      const value = { version, revision: 9999, text: '' }
      return shownMore(h, { changes: [{ key: older.key }, { key: older.key, value }] })
    },
  ],
  'a watcher is shown what nobody put': [
    'shown',
    (h) => shownMore(h, { changes: [{ key: KEY, value: { version: 77_777, revision: 9999, text: '' } }] }),
  ],
  'a watcher is shown one address for two services': [
    'service address',
    (h) => {
      const value = { ips: ['245.0.0.1'], revision: 9999, text: '' }
      return shownMore(h, {
        changes: [
          { key: '/ClusterSetIP/shop/x', value },
          { key: '/ClusterSetIP/shop/y', value },
        ],
      })
    },
  ],
}

function shownMore(history: History, change: Partial<Observation>): History {
  const last = history.observations.at(-1)!
  return { ...history, observations: [...history.observations, { ...last, at: last.at + 1, ...change }] }
}

for (const [name, [rule, breakIt]] of Object.entries(BREAKS)) {
  t.test(name, (t) => {
    fc.assert(
      fc.property(steps, (list) => {
        const rules = rulesOf(breakIt(soundHistory(list)))
        if (!rules.includes(rule)) throw new Error(`named ${rules.join(', ') || 'nothing'}`)
      }),
      { numRuns: 50 },
    )
    t.pass(rule)
    t.end()
  })
}

t.test('of two calls at the same time either may be the last', (t) => {
  const both = (version: number | undefined): Rule[] => {
    const call = { cluster: 'c0', life: 1, key: KEY, outcome: 'ok' } as const
    const calls: AnyCall[] = [
      { t: 'put', version: 1, start: 1, end: 5, ...call },
      { t: 'put', version: 2, start: 2, end: 4, ...call },
      { t: 'put', version: 3, start: 3, end: 9, ...call, outcome: 'unknown' },
      { t: 'put', version: 4, start: 3, end: 9, ...call, outcome: 'failed' },
    ]
    const records = new Map(version === undefined ? [] : [[KEY, { version, revision: 1, text: '' }] as const])
    const look: QuietLook = { at: 10, epoch: 'e', records, members: [], tokens: [], watchers: [] }
    return rulesOf({ calls, observations: [], looks: [look] })
  }
  t.same([1, 2, 3].map(both), [[], [], []])
  t.same([4, 5, undefined].map(both), [['record'], ['record'], ['record']])
  t.end()
})

t.test('a call of unknown outcome is over once a later one is acknowledged', (t) => {
  const call = { cluster: 'c0', life: 1, key: KEY } as const
  const calls: AnyCall[] = [
    { t: 'put', version: 1, start: 1, end: 2, outcome: 'unknown', ...call },
    { t: 'remove', version: 2, start: 3, end: 4, outcome: 'ok', ...call },
  ]
  const look = { at: 10, epoch: 'e', members: [], tokens: [], watchers: [] }
  const records = new Map([[KEY, { version: 1, revision: 1, text: '' }]])
  t.same(rulesOf({ calls, observations: [], looks: [{ ...look, records }] }), ['record'])
  t.same(rulesOf({ calls, observations: [], looks: [{ ...look, records: new Map() }] }), [])
  t.end()
})
