/** What is made of the kernel's counts. Real counts: test/lanes/flows.test.ts. */
import fc from 'fast-check'
import t from 'tap'
import {
  CONNECT_TIMES_MS,
  type FlowCounts,
  MAX_FLOW_ROWS,
  NO_FLOWS,
  addFlows,
  connectTimeBucket,
  connectTimeQuantile,
} from '../../../model/flow-counts.ts'
import { FLOW_SETS, type FlowSet, elementsFor } from '../../../routeagent/flows/plan-flows-table.ts'
import { FlowReadings, FlowTotals } from '../../../routeagent/flows/plan-totals.ts'
import { counts } from '../support/flow-counts.ts'

const CALL = '10.42.1.5 . 245.0.0.7 . 244.1.0.5'
/** Each packet is counted by one set. */
const OCTETS: Readonly<Record<'sentBytes' | 'receivedBytes', readonly FlowSet[]>> = {
  sentBytes: ['opened', 'unanswered', 'sent'],
  receivedBytes: ['answered', 'refused', 'received'],
}
const OUTCOMES = ['opened', 'answered', 'refused', 'unanswered'] as const
const NEVER = (): boolean => false

t.test('growth', async (t) => {
  const readings = new FlowReadings()
  const take = (sets: Parameters<typeof counts>[0], uncounted = 0) => readings.take(counts(sets, uncounted), NEVER)
  const first = take({ opened: { [CALL]: [3, 180] }, sent: { [CALL]: [9, 900] }, received: { [CALL]: [6, 600] } }, 2)
  t.match(first.calls, [{ client: '10.42.1.5', called: '245.0.0.7', server: '244.1.0.5' }])
  t.match(first.calls[0]?.counts, { opened: 3, sentBytes: 1080, receivedBytes: 600 })
  t.equal(first.uncounted, 2, 'there was no room for two')
  t.same(
    take({ opened: { [CALL]: [3, 180] }, sent: { [CALL]: [9, 900] }, received: { [CALL]: [6, 600] } }, 2).calls,
    [],
  )
  t.equal(take({ opened: { [CALL]: [1, 60] } }, 2).calls[0]?.counts.opened, 1, 'an element that came again')
  readings.replaced()
  const again = take({ opened: { [CALL]: [4, 60] } })
  t.equal(again.calls[0]?.counts.opened, 4, 'a new table')
  t.equal(again.uncounted, 0)
  t.same(take({}).calls, [], 'the kernel has dropped what was idle')
  t.match(take({ unanswered: { [CALL]: [1, 60] } }).calls, [{ counts: { opened: 0, unanswered: 1, sentBytes: 60 } }])
  const both = take({ opened: { [CALL]: [2, 60] }, 'in-opened': { [CALL]: [5, 60] } }).calls
  t.same(
    both.map(({ client, server, counts: { opened } }) => [client, server, opened]),
    [2, 5].map((n) => ['10.42.1.5', '244.1.0.5', n]),
    'calls from other clusters have sets of their own',
  )
  const empty = new FlowReadings().take(counts({ opened: { [CALL]: [2, 0] } }), () => true)
  t.match(empty.calls[0]?.counts, { opened: 2, refused: 2 }, 'no endpoint')
})

t.test('nothing is counted twice, and nothing is lost', async () => {
  const step = fc.record({ set: fc.constantFrom(...FLOW_SETS), more: fc.nat(20), again: fc.boolean() })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const readings = new FlowReadings()
      const so = new Map<FlowSet, number>()
      let sum = NO_FLOWS
      for (const { set, more, again } of steps) {
        so.set(set, (so.get(set) ?? 0) + more)
        if (!again) continue
        const sets = Object.fromEntries([...so].map(([name, n]) => [name, { [CALL]: [n, 10 * n] as const }]))
        for (const { counts: part } of readings.take(counts(sets), NEVER).calls) sum = addFlows(sum, part)
        const packets = (of: readonly FlowSet[]) => of.reduce((all, name) => all + (so.get(name) ?? 0), 0)
        if (OUTCOMES.some((name) => sum[name] !== packets([name]))) return false
        if (sum.sentBytes !== 10 * packets(OCTETS.sentBytes)) return false
        if (sum.receivedBytes !== 10 * packets(OCTETS.receivedBytes)) return false
      }
      return true
    }),
  )
})

t.test('a set with anything in it', async () => {
  const element = fc.record({ key: fc.string(), packets: fc.nat(), bytes: fc.nat() })
  fc.assert(
    fc.property(fc.array(element), (elements) => {
      const sets = new Map<FlowSet, typeof elements>([['opened', elements]])
      const { calls } = new FlowReadings().take({ sets }, NEVER)
      return calls.length <= elements.length
    }),
  )
})

t.test('totals', async (t) => {
  const totals = new FlowTotals()
  const web = { way: 'out', namespace: 'shop', service: 'shop/web', cluster: 'paris' } as const
  totals.add(web, { ...NO_FLOWS, opened: 2 }, 0)
  totals.add(web, { ...NO_FLOWS, opened: 3, refused: 1 }, 30_000)
  totals.add({ ...web, cluster: 'oslo' }, { ...NO_FLOWS, opened: 4 }, 30_000)
  totals.addTime(web, 0.3)
  const [first, second] = totals.rows(30_000).rows
  t.match(first, { ...web, total: { opened: 5, refused: 1 }, recent: { opened: 5 } })
  t.equal(first?.times[connectTimeBucket(0.3)], 1)
  t.match(second, { cluster: 'oslo' })
  t.match(totals.rows(65_000).rows[0], { cluster: 'oslo', recent: { opened: 4 } }, 'what is older is not of late')
  t.match(totals.rows(200_000).rows[0], { cluster: 'paris', total: { opened: 5 }, recent: { opened: 0 } })
})

t.test('the least used are summed', async (t) => {
  const totals = new FlowTotals()
  for (let i = 0; i < 3 * MAX_FLOW_ROWS; i += 1) {
    totals.add({ way: 'out', namespace: `n${i}` }, { ...NO_FLOWS, opened: 1 + (i % 7) }, 0)
    totals.addTime({ way: 'out', namespace: `n${i}` }, 1)
  }
  t.equal(totals.size, 2 * MAX_FLOW_ROWS)
  totals.trim(0)
  t.equal(totals.size, MAX_FLOW_ROWS)
  const { rows, rest } = totals.rows(0)
  const all = Array.from({ length: 3 * MAX_FLOW_ROWS }, (_, i) => 1 + (i % 7)).reduce((sum, n) => sum + n)
  const opened = (of: readonly { readonly total: FlowCounts }[]) => of.reduce((sum, { total }) => sum + total.opened, 0)
  t.equal(opened(rows) + opened([rest]), all)
  t.equal(
    [...rows, rest].flatMap(({ times }) => times).reduce((sum, n) => sum + n),
    3 * MAX_FLOW_ROWS,
  )
  t.ok((rows.at(-1)?.total.opened ?? 0) >= 4, 'the most used stay')
})

t.test('quantiles', async (t) => {
  t.equal(connectTimeQuantile([], 0.5), undefined)
  t.equal(connectTimeQuantile([0, 0, 0], 0.5), undefined)
  t.equal(connectTimeBucket(1e9), CONNECT_TIMES_MS.length)
  fc.assert(
    fc.property(fc.array(fc.double({ min: 0, max: 4000, noNaN: true }), { minLength: 1 }), (all) => {
      const times = new Array<number>(CONNECT_TIMES_MS.length + 1).fill(0)
      for (const ms of all) times[connectTimeBucket(ms)] = (times[connectTimeBucket(ms)] ?? 0) + 1
      const [low, middle, high] = [0.1, 0.5, 0.99].map((part) => connectTimeQuantile(times, part) ?? -1)
      const sorted = all.toSorted((a, b) => a - b)
      const median = sorted[Math.ceil(all.length / 2) - 1] ?? 0
      const isNear = connectTimeBucket(middle ?? 0) === Math.min(connectTimeBucket(median), CONNECT_TIMES_MS.length - 1)
      return (
        (low ?? 0) <= (middle ?? 0) &&
        (middle ?? 0) <= (high ?? 0) &&
        (isNear || middle === CONNECT_TIMES_MS[connectTimeBucket(median) - 1])
      )
    }),
    { examples: [[[0.11, 0.11, 0.11, 0, 0, 0]]] },
  )
})

t.test('memory of the kernel', async (t) => {
  t.equal(elementsFor(2), 8192)
  for (const cpus of [1, 16, 128, 256]) {
    const octets = elementsFor(cpus) * 7.5 * (160 + 16 * cpus)
    t.ok(octets <= 24 << 20, `${cpus} CPUs: ${octets} octets`)
  }
})
