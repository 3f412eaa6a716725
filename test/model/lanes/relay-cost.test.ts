/** What gateways state of relays, and what follows for the order of relays. */
import fc from 'fast-check'
import t from 'tap'
import {
  COST_DIFFERS_MS,
  FULL_LOAD_MS,
  MAX_RELAY_RTTS,
  costClass,
  decodeRelayCosts,
  encodeRelayCosts,
  isClearlyLess,
  relayCostMs,
  relayMark,
  statesRelayCosts,
} from '../../../model/lanes/lanes.ts'

const KEY = 'uvYx0mBvvLO4tkb6yc3/5ETBVTU+5ynTJd4ePWPWwSE='
const MARK = relayMark(KEY)
const rtts = (ms: number): ReadonlyMap<string, number> => new Map([[MARK, ms]])

t.test('statements of any costs are read as they were written', async () => {
  const mark = fc.uint8Array({ minLength: 12, maxLength: 12 }).map((one) => Buffer.from(one).toString('base64'))
  const load = fc.option(fc.integer({ min: 0, max: 10 }), { nil: undefined })
  const pairs = fc.uniqueArray(fc.tuple(mark, fc.nat(9999)), { maxLength: MAX_RELAY_RTTS, selector: ([one]) => one })
  fc.assert(
    fc.property(pairs, load, (list, tenths) => {
      const costs = { rttMs: new Map(list), ...(tenths === undefined ? {} : { load: tenths / 10 }) }
      const texts = encodeRelayCosts(costs)
      const read = decodeRelayCosts(['relay', ...texts, 'draining'])
      const sorted = (map: ReadonlyMap<string, number>): string => JSON.stringify([...map].sort())
      return (
        texts.every((one) => one.length <= 63) &&
        statesRelayCosts(texts) === texts.length > 0 &&
        sorted(read.rttMs) === sorted(costs.rttMs) &&
        read.load === costs.load
      )
    }),
  )
})

t.test('what others state never throws, and never states more than may be', async () => {
  const text = fc.oneof(
    fc.string(),
    fc.stringMatching(/^relay-load-[0-9-]{1,4}$/),
    fc.stringMatching(/^relay-rtt-[A-Za-z0-9+/]{15,17}-[0-9-]{0,6}$/),
  )
  fc.assert(
    fc.property(fc.array(text, { maxLength: 64 }), (texts) => {
      const { rttMs, load = 0 } = decodeRelayCosts(texts)
      const isIn = (ms: number): boolean => Number.isInteger(ms) && ms >= 0 && ms <= 9999
      return rttMs.size <= MAX_RELAY_RTTS && [...rttMs.values()].every(isIn) && load >= 0 && load <= 1
    }),
  )
})

t.test('refused statements', async (t) => {
  const bad = ['relay-load-11', 'relay-load--1', 'relay-load-1.5', 'relay-load-', `relay-rtt-${MARK}-10000`]
  const read = decodeRelayCosts([...bad, `relay-rtt-${MARK}--1`, `relay-rtt-${MARK}`, 'relay-rtt-short-1'])
  t.equal(read.load, undefined)
  t.equal(read.rttMs.size, 0)
  t.equal(decodeRelayCosts([`relay-rtt-${MARK}-7`, `relay-rtt-${MARK}-1`]).rttMs.get(MARK), 7, 'the first counts')
})

t.test('the nearest relays are stated', async (t) => {
  const many = Array.from({ length: 30 }, (_, i) => [`${i}`.padStart(16, 'A'), 100 - i] as const)
  const { rttMs } = decodeRelayCosts(encodeRelayCosts({ rttMs: new Map(many) }))
  t.equal(rttMs.size, MAX_RELAY_RTTS)
  t.equal(Math.max(...rttMs.values()), 86)
})

t.test('two ends that are far apart state common relays, if there are up to sixteen', async (t) => {
  const marks = Array.from({ length: 16 }, (_, i) => `${i}`.padStart(16, 'A'))
  const near = decodeRelayCosts(encodeRelayCosts({ rttMs: new Map(marks.map((one, i) => [one, 5 + 10 * i])) }))
  const far = decodeRelayCosts(encodeRelayCosts({ rttMs: new Map(marks.map((one, i) => [one, 160 - 10 * i])) }))
  t.strictSame(
    marks.filter((one) => relayCostMs(one, near, far) === undefined),
    [],
  )
})

t.test('a relay that lies about its load gains at most what a full one loses', async (t) => {
  const [a, b] = [{ rttMs: rtts(10) }, { rttMs: rtts(20) }]
  t.equal(relayCostMs(KEY, a, b), 30)
  t.equal(relayCostMs(KEY, b, a, 1), 30 + FULL_LOAD_MS)
  t.equal(relayCostMs(KEY, a, { rttMs: new Map() }), undefined)
})

t.test('small differences do not matter', async () => {
  const ms = fc.integer({ min: 0, max: 30_000 })
  fc.assert(fc.property(ms, ms, (a, b) => a > b || costClass(a) <= costClass(b)))
  // What is clearly less is never of a higher class, and two of one class are never clearly apart.
  fc.assert(
    fc.property(ms, ms, (a, b) => costClass(a) !== costClass(b) || Math.abs(a - b) <= COST_DIFFERS_MS + a * 0.25),
  )
  fc.assert(fc.property(ms, ms, (a, b) => !(isClearlyLess(a, b) && isClearlyLess(b, a))))
})
