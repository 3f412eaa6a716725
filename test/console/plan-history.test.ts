/** The history that charts are drawn from: ten minutes, bounded, with gaps where nothing was read. */
import fc from 'fast-check'
import t from 'tap'
import { createModel, takeSections } from '../../console/page/page.ts'
import {
  type HistorySample,
  callSeries,
  linkSeries,
  minutesOf,
  sampleOf,
  withSample,
} from '../../console/page/plan-history.ts'
import type { ConsoleState } from '../../console/state/state.ts'
import { DOWN, changeLinks } from '../explain/broken-member.ts'
import { stateOf } from './support/console-facts.ts'

const LINK = 'gw0 lane 0 to paris lane 0'

function samplesAt(times: readonly number[]): readonly HistorySample[] {
  return times.reduce<readonly HistorySample[]>((all, at) => withSample(all, sampleOf(at, [], undefined)), [])
}

t.test('ten minutes, and no more than one sample in about two seconds', async (t) => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: -500, max: 20_000 }), { maxLength: 900 }), (steps) => {
      let now = 1e12
      const kept = samplesAt(steps.map((step) => (now += step)))
      const ages = kept.map(({ at }) => (kept.at(-1)?.at ?? 0) - at)
      const gaps = kept.slice(1).map(({ at }, i) => at - (kept[i]?.at ?? 0))
      return kept.length <= 320 && ages.every((age) => age <= 600_000) && gaps.every((gap) => gap >= 1900)
    }),
  )
  t.same(samplesAt([Number.NaN, Infinity]), [])
  const often = samplesAt(Array.from({ length: 900 }, (_, i) => 1e12 + i * 1000))
  t.ok((often.at(-1)?.at ?? 0) - (often[0]?.at ?? 0) > 590_000, 'a console that looks each second has ten minutes too')
  t.same(
    samplesAt([1e12, 1e12 + 2000, 1e12 - 3_600_000, 1e12 - 3_598_000]).map(({ at }) => at),
    [1e12 - 3_600_000, 1e12 - 3_598_000],
    'the clock was set back',
  )
})

t.test('links by name: RTT and loss, and a link that is down loses everything', async (t) => {
  const up = stateOf().links.rows
  const down = stateOf({ change: (at) => changeLinks(at, ({ cluster }) => cluster === 'paris', DOWN) }).links.rows
  const history = [up, undefined, down].reduce<readonly HistorySample[]>(
    (all, rows, i) => withSample(all, sampleOf(60_000 + i * 2000, rows, undefined)),
    [],
  )
  t.same(linkSeries(history, LINK), {
    times: [60, 62, 64],
    values: [
      [12.5, null, null],
      [0, null, 100],
    ],
  })
  t.same(linkSeries(history, 'none').values, [
    [null, null, null],
    [null, null, null],
  ])
  t.same(minutesOf(linkSeries(history, LINK)), [
    {
      at: '1970-01-01T00:01:00.000Z',
      values: [
        { mean: 12.5, most: 12.5 },
        { mean: 50, most: 100 },
      ],
    },
  ])
})

t.test('calls: a service that is not listed was not called', async (t) => {
  const row = { service: 'shop/web', callsPerSecond: 3, bytesPerSecond: 1, refused: 0, unanswered: 0 }
  const history = [[row], undefined, [{ ...row, service: 'shop/db' }]].reduce<readonly HistorySample[]>(
    (all, rows, i) => withSample(all, sampleOf(i * 2000, undefined, rows)),
    [],
  )
  t.same(callSeries(history, 'shop/web'), { times: [0, 4], values: [[3, 0]] })
})

t.test('calls: a service without a place in a full list is not known', async (t) => {
  const rows = Array.from({ length: 300 }, (_, i) => {
    return { service: `shop/s${i}`, callsPerSecond: 1, bytesPerSecond: 1, refused: 0, unanswered: 0 }
  })
  const history = withSample([], sampleOf(0, undefined, rows))
  t.same(callSeries(history, 'shop/s250').values, [[null]])
  t.same(callSeries(history, 'shop/s1').values, [[1]])
})

t.test('thousands of links: the first 200', async (t) => {
  const [row] = stateOf().links.rows
  const rows = Array.from({ length: 2000 }, (_, i) => ({ ...row!, cluster: `c${i}` }))
  t.equal(sampleOf(1, rows, undefined).links.size, 200)
})

t.test(
  'the page remembers what it is sent: each look once, calls once for each reading, nothing of a file',
  async (t) => {
    const model = createModel(0, undefined)
    const calls = {
      ...{ command: '', more: 0 },
      rows: [{ service: 'shop/web', callsPerSecond: 3, bytesPerSecond: 1, refused: 0, unanswered: 0 }],
    }
    const look = (facts: string, flows: string, change: Partial<ConsoleState> = {}): void => {
      takeSections(model, { ...stateOf(), calls, ...change, times: { facts, flows } })
    }
    look('2026-11-25T12:00:00Z', '2026-11-25T12:00:00Z')
    look('2026-11-25T12:00:00Z', '2026-11-25T12:00:00Z')
    look('2026-11-25T12:00:02Z', '2026-11-25T12:00:00Z')
    look('2026-11-25T12:00:04Z', '2026-11-25T12:00:04Z', { links: { ...stateOf().links, stale: { why: 'x' } } })
    t.same(linkSeries(model.history.value, LINK).values[0], [12.5, 12.5, null], 'rows that are kept are not new')
    t.same(callSeries(model.history.value, 'shop/web').values, [[3, 3]])
    const late = createModel(0, undefined)
    takeSections(late, { ...stateOf(), calls, times: { facts: '2026-11-25T12:00:00Z', flows: '2026-11-25T11:59:00Z' } })
    t.same(
      callSeries(late.history.value, 'shop/web').times,
      [],
      'calls of before the page was open are not those of now',
    )
    const file = createModel(0, undefined)
    takeSections(file, stateOf({ input: { live: false } }))
    t.same(file.history.value, [])
  },
)
