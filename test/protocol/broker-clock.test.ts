import t from 'tap'
import { BrokerClock } from '../../protocol/sessions/watch-session.ts'

type Row = readonly [
  says: readonly (readonly [brokerMs: number, hereMs: number, monotonicMs: number])[],
  ahead?: number,
]

const ROWS: Readonly<Record<string, Row>> = {
  nothing: [[]],
  once: [[[99_000, 20_000, 0]]],
  twice: [
    [
      [5000, 5100, 100],
      [20_000, 20_050, 15_050],
    ],
    -50,
  ],
  'the quickest of the last three': [
    [
      [90_000, 0, 0],
      [15_000, 15_900, 15_900],
      [30_000, 30_010, 30_010],
      [45_000, 49_000, 49_000],
    ],
    -10,
  ],
  "the broker's clock was ahead, and has been set": [
    [
      [900_000, 0, 0],
      [15_010, 15_020, 15_020],
      [30_010, 30_015, 30_015],
    ],
    -5,
  ],
  'the clock here was behind, and has been set': [
    [
      [900_000, 0, 0],
      [915_000, 15_000, 15_000],
      [930_000, 930_020, 30_020],
      [945_000, 945_010, 45_010],
    ],
    -10,
  ],
  'and nothing was heard twice since': [
    [
      [900_000, 0, 0],
      [915_000, 15_000, 15_000],
      [930_000, 930_020, 30_020],
    ],
  ],
}

for (const [name, [says, ahead]] of Object.entries(ROWS)) {
  t.test(name, (t) => {
    const clock = new BrokerClock()
    for (const one of says) clock.says(...one)
    const nowMs = says.at(-1)?.[2] ?? 0
    t.equal(clock.aheadMs(nowMs), ahead)
    t.equal(clock.aheadMs(nowMs + 60_001), undefined, 'it is long ago')
    clock.forget()
    t.equal(clock.aheadMs(nowMs), undefined, 'another stream begins')
    t.end()
  })
}
