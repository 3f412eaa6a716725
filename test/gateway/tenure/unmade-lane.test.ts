import tap from 'tap'
import { FORGET_MS, FAILED_LANE_MS, FailedLane } from '../../../gateway/lease/failed-lane.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

type Step = readonly [afterMs: number, failure: string | undefined]

const rows: readonly { readonly name: string; readonly steps: readonly Step[]; readonly want: string | undefined }[] = [
  { name: 'no try', steps: [], want: undefined },
  { name: 'one that failed', steps: [[0, 'taken']], want: undefined },
  {
    name: 'one that failed long ago, as of a gateway that has lost its turn',
    steps: [
      [0, 'taken'],
      [FAILED_LANE_MS, undefined],
    ],
    want: undefined,
  },
  {
    name: 'all failed for long enough: the first word is kept',
    steps: [
      [0, 'taken'],
      [FAILED_LANE_MS / 2, 'another'],
      [FAILED_LANE_MS / 2, 'a third'],
    ],
    want: 'the lane cannot be set up: taken',
  },
  {
    name: 'made in between',
    steps: [
      [0, 'taken'],
      [FAILED_LANE_MS / 2, undefined],
      [FAILED_LANE_MS / 2, 'taken'],
    ],
    want: undefined,
  },
  {
    name: 'failed, and not tried for long: what was is forgotten',
    steps: [
      [0, 'taken'],
      [FORGET_MS, 'taken'],
    ],
    want: undefined,
  },
]
for (const { name, steps, want } of rows) {
  tap.test(name, async (t) => {
    const clock = new FakeClock()
    const lane = new FailedLane(clock)
    for (const [afterMs, failure] of steps) {
      await clock.advance(afterMs)
      lane.tried(failure)
    }
    await clock.advance(FAILED_LANE_MS)
    t.equal(lane.why(), want)
    t.equal(lane.report(), want)
    t.equal(lane.report(), undefined, 'once')
    await clock.advance(FORGET_MS)
    t.equal(lane.why(), undefined, 'it is forgotten')
  })
}
