/** Which backends are checked, and when their state changes. */
import fc from 'fast-check'
import t from 'tap'
import {
  type BackendState,
  type CheckOutcome,
  knownState,
  planHealth,
  planTargets,
  stateAfter,
} from '../../../agent/backends/plan-checks.ts'
import type { EndpointSlice } from '../../../model/objects.ts'
import { sliceObject } from '../../support/objects/service-objects.ts'

const NOW = '2026-01-01T00:00:00Z'

function slice(check: string | undefined, endpoints: readonly (readonly string[])[], labels = {}): EndpointSlice {
  const annotations = check === undefined ? {} : { annotations: { 'sealane.io/check': check } }
  const parts = { ports: [{ port: 8080 }], endpoints: endpoints.map((addresses) => ({ addresses: [...addresses] })) }
  return sliceObject({ name: 'web-1', labels, ...annotations }, parts)
}

t.test('targets are the first addresses of the own slices that have a check', async (t) => {
  const rows: readonly (readonly [what: string, of: EndpointSlice, want: readonly string[]])[] = [
    ['each endpoint', slice('tcp', [['10.42.0.1'], ['10.42.0.2']]), ['10.42.0.1:8080', '10.42.0.2:8080']],
    ['the same address twice', slice('tcp', [['10.42.0.1'], ['10.42.0.1']]), ['10.42.0.1:8080']],
    ['the first of several addresses', slice('tcp', [['10.42.0.1', '10.42.0.2']]), ['10.42.0.1:8080']],
    ['the port of the check', slice('http:9000/up', [['10.42.0.1']]), ['10.42.0.1:9000']],
    ['no check', slice(undefined, [['10.42.0.1']]), []],
    ['an invalid check', slice('icmp', [['10.42.0.1']]), []],
    ['no endpoints', slice('tcp', []), []],
    ['an import', slice('tcp', [['10.42.0.1']], { 'multicluster.kubernetes.io/source-cluster': 'paris' }), []],
  ]
  for (const [what, of, want] of rows) {
    t.same(
      planTargets(of).map(({ address, port }) => `${address}:${port}`),
      want,
      what,
    )
  }
})

/** Plays results such as `+--+`, and gives the state after each: `?`, `+` or `-`. */
function play(results: string, timing: { fall: number; rise: number }, state?: BackendState): string {
  let shown = ''
  for (const [i, result] of Array.from(results).entries()) {
    const outcome: CheckOutcome = result === '+' ? { passed: true } : { passed: false, message: `failure ${i}` }
    state = stateAfter(state, outcome, timing, `${i}`)
    shown += state.up === undefined ? '?' : state.up ? '+' : '-'
  }
  return shown
}

t.test('fall and rise', async (t) => {
  const up: BackendState = { up: true, streak: { passed: true, count: 0 }, since: NOW }
  const down: BackendState = { up: false, streak: { passed: false, count: 0 }, since: NOW, message: 'm' }
  const rows: readonly (readonly [
    results: string,
    fall: number,
    rise: number,
    from: BackendState | undefined,
    want: string,
  ])[] = [
    ['+-+-+-', 2, 1, undefined, '++++++'],
    ['--+--', 2, 1, undefined, '?-++-'],
    ['-+--', 2, 1, undefined, '?++-'],
    ['+---', 3, 1, up, '+++-'],
    ['++', 2, 2, down, '-+'],
    ['+-+-++', 2, 2, down, '-----+'],
    ['-', 1, 1, up, '-'],
    ['---', 2, 1, down, '---'],
    ['+-+', 2, 2, undefined, '???'],
  ]
  for (const [results, fall, rise, from, want] of rows) {
    t.equal(play(results, { fall, rise }, from), want, `${results} with fall ${fall} and rise ${rise}`)
  }
})

t.test('a restart keeps the last state until enough new results contradict it', async (t) => {
  const status = { check: 'tcp', backends: [{ address: '10.42.0.1', up: false, since: NOW, message: 'no answer' }] }
  const known = { ...slice('tcp', [['10.42.0.1'], ['10.42.0.2']]), status }
  t.match(knownState(known, '10.42.0.1'), { up: false, since: NOW, message: 'no answer' })
  t.equal(knownState(known, '10.42.0.2'), undefined)
  const before = planHealth(known, ({ address }) => knownState(known, address))
  t.same(before, status, 'nothing changes by the start')
})

t.test('a state that stays has its first time and message, and is the same object', async (t) => {
  const timing = { fall: 1, rise: 1 }
  const first = stateAfter(undefined, { passed: false, message: 'connection refused' }, timing, 'then')
  const second = stateAfter(first, { passed: false, message: 'no answer within 1s' }, timing, 'later')
  t.equal(second, first)
  t.match(first, { up: false, since: 'then', message: 'connection refused' })
  const up = stateAfter(first, { passed: true }, timing, 'at last')
  t.same(up, { up: true, streak: { passed: true, count: 0 }, since: 'at last' }, 'the message goes')
})

t.test('a state changes only after fall failures or rise successes in a row', async () => {
  const count = fc.integer({ min: 1, max: 5 })
  fc.assert(
    fc.property(fc.array(fc.boolean(), { maxLength: 40 }), count, count, (results, fall, rise) => {
      let state: BackendState | undefined
      let row = 0
      for (const [i, passed] of results.entries()) {
        row = results[i - 1] === passed ? row + 1 : 1
        const before = state?.up
        state = stateAfter(state, passed ? { passed } : { passed, message: 'm' }, { fall, rise }, `${i}`)
        const enough = row >= (passed ? rise : fall)
        t.equal(state.up, enough ? passed : before, `${results.join()} at ${i}`)
      }
    }),
  )
})

t.test('the status has the backends with a state, in the order of the slice', async (t) => {
  const states: Readonly<Record<string, BackendState>> = {
    '10.42.0.3': { up: true, streak: { passed: true, count: 0 }, since: NOW },
    '10.42.0.1': { up: false, streak: { passed: false, count: 0 }, since: NOW, message: 'HTTP status 503' },
    '10.42.0.9': { up: false, streak: { passed: false, count: 0 }, since: NOW, message: 'was removed' },
  }
  const of = slice('tcp', [['10.42.0.1'], ['10.42.0.2'], ['10.42.0.3']])
  t.same(
    planHealth(of, ({ address }) => states[address]),
    {
      check: 'tcp',
      backends: [
        { address: '10.42.0.1', up: false, since: NOW, message: 'HTTP status 503' },
        { address: '10.42.0.3', up: true, since: NOW },
      ],
    },
  )
  t.equal(
    planHealth(of, () => undefined),
    undefined,
  )
})
