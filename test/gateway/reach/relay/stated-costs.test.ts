/** What a gateway states of relays changes rarely. */
import t from 'tap'
import {
  COST_KEPT_MS,
  COST_STAYS_MS,
  RESTORED_LOAD_MS,
  ROOM_AFTER_MS,
  StatedCosts,
} from '../../../../gateway/reach/relay/stated-costs.ts'
import { MAX_RELAY_RTTS } from '../../../../model/lanes/lanes.ts'

const MARK = 'AAAAAAAAAAAAAAAA'
const rtt = (ms: number) => ({ rttMs: new Map([[MARK, ms]]) })
const none = { rttMs: new Map<string, number>() }
const stated = (ms: number): string[] => [`relay-rtt-${MARK}-${ms}`]

t.test('another round trip is stated after it has lasted', async (t) => {
  const costs = new StatedCosts()
  t.strictSame(costs.look(rtt(20.4), 0), stated(20))
  t.strictSame(costs.look(rtt(29), COST_STAYS_MS), stated(20), 'less than 10 ms more')
  t.strictSame(costs.look(rtt(40), COST_STAYS_MS + 1), stated(20))
  t.strictSame(costs.look(rtt(21), COST_STAYS_MS + 2), stated(20), 'a moment only')
  t.strictSame(costs.look(rtt(40), 100_000), stated(20))
  t.strictSame(costs.look(rtt(44), 100_000 + COST_STAYS_MS - 1), stated(20))
  t.strictSame(costs.look(rtt(44), 100_000 + COST_STAYS_MS), stated(44), 'the one that is measured then')
  t.strictSame(costs.look(rtt(200), 200_000), stated(44))
  t.strictSame(costs.look(rtt(35), 200_001 + COST_STAYS_MS), stated(44), 'less than a fifth')
})

t.test('the number of a relay stays while the link with it sleeps', (t) => {
  const costs = new StatedCosts()
  const asleep = { ...none, asleep: [MARK] }
  t.strictSame(costs.look(asleep, 0), [], 'it was never measured')
  costs.look(rtt(20), 0)
  costs.look(rtt(40), 1)
  t.strictSame(costs.look(asleep, COST_STAYS_MS), stated(20))
  t.strictSame(costs.look(rtt(40), COST_STAYS_MS + 1), stated(20), 'it differs from now on')
  t.strictSame(costs.look(asleep, COST_KEPT_MS), stated(20))
  t.strictSame(costs.look(none, COST_KEPT_MS + COST_STAYS_MS), stated(20))
  t.end()
})

t.test('a relay that is away stays, as long as there is room', async (t) => {
  const costs = new StatedCosts()
  costs.look(rtt(20), 0)
  t.strictSame(costs.look(none, 50 * 60_000), stated(20), 'records of all members would change')
  t.strictSame(costs.look(none, COST_KEPT_MS - 1), stated(20))
  t.strictSame(costs.look(none, COST_KEPT_MS), [])
  const full = new StatedCosts()
  full.look(rtt(1), 0)
  const others = Array.from({ length: MAX_RELAY_RTTS }, (_, i) => [`${i}`.padStart(16, 'B'), 30] as const)
  t.ok(full.look({ rttMs: new Map(others) }, ROOM_AFTER_MS - 1).includes(stated(1)[0] ?? ''))
  const made = full.look({ rttMs: new Map(others) }, ROOM_AFTER_MS)
  t.equal(made.length, MAX_RELAY_RTTS)
  t.notOk(made.includes(stated(1)[0] ?? ''))
})

t.test('a process that starts again states what was stated', async (t) => {
  const costs = new StatedCosts()
  costs.restore(rtt(20), 0)
  t.strictSame(costs.look(none, 1), stated(20))
  t.strictSame(costs.look(rtt(25), 2), stated(20))
})

t.test('a relay that starts again states its load before it has measured any', async (t) => {
  const costs = new StatedCosts()
  costs.restore({ ...none, load: 0.8 }, 0)
  t.strictSame(costs.look(none, 1), ['relay-load-8'], 'it does not serve yet')
  t.strictSame(costs.look({ ...none, load: 0 }, 1000), ['relay-load-8'], 'its pairs come back')
  t.strictSame(costs.look({ ...none, load: 0 }, 1000 + COST_STAYS_MS), ['relay-load-0'])
  const withdrawn = new StatedCosts()
  withdrawn.restore({ ...none, load: 0.8 }, 0)
  t.strictSame(withdrawn.look(none, RESTORED_LOAD_MS), [], 'it relays no longer')
})

t.test('the load of a relay', async (t) => {
  const costs = new StatedCosts()
  const load = (value: number) => ({ ...none, load: value })
  t.strictSame(costs.look(load(0.1), 0), ['relay-load-1'])
  t.strictSame(costs.look(load(0.25), COST_STAYS_MS), ['relay-load-1'], 'nearly the same')
  t.strictSame(costs.look(load(0.9), COST_STAYS_MS + 1), ['relay-load-1'])
  t.strictSame(costs.look(load(0.9), 2 * COST_STAYS_MS + 1), ['relay-load-9'])
  t.strictSame(costs.look(none, 2 * COST_STAYS_MS + 2), [], 'it relays no longer')
})
