/** The search for the path MTU of a link, on paths of any width that lose packets, change and lie. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  SIZE_STEP,
  type SearchMoment,
  type SearchState,
  type SizeBounds,
  answered,
  followTraffic,
  newSearch,
  sizeInUse,
  step,
  withBounds,
} from '../../../kernel/probing/path-size.ts'

const BOUNDS: SizeBounds = { floor: 576, base: 1216, most: 1440 }

/** A path: what becomes of a probe of some size at some time. */
type Way = (size: number, nowMs: number) => 'answer' | 'lost'

interface Walk {
  state: SearchState
  nowMs: number
  sent: number
  /** The sizes in use, in their order. */
  readonly sizes: number[]
}

function newWalk(bounds: SizeBounds = BOUNDS): Walk {
  const state = newSearch(bounds, 0)
  return { state, nowMs: 0, sent: 0, sizes: [sizeInUse(state)] }
}

/** Runs the search for `forMs`. Each answer takes 20 ms, and the search waits up to 60 ms for one. */
function walk(at: Walk, way: Way, forMs: number, busy = true): void {
  const untilMs = at.nowMs + forMs
  while (at.nowMs < untilMs) {
    const moment = (): SearchMoment => ({ nowMs: at.nowMs, busy, patienceMs: 60 })
    at.state = followTraffic(at.state, { busy })
    at.nowMs = Math.max(at.nowMs, Math.min(untilMs, at.state.dueMs))
    if (at.nowMs < at.state.dueMs) break
    const { state, send } = step(at.state, moment())
    at.state = state
    at.sent += send.length
    const askedAt = at.nowMs
    for (const size of send) {
      if (way(size, askedAt) === 'lost') continue
      at.nowMs = askedAt + 20
      at.state = answered(at.state, size, moment())
    }
    const size = sizeInUse(at.state)
    if (size !== at.sizes.at(-1)) at.sizes.push(size)
  }
}

const wide: Way = () => 'answer'
const narrow =
  (most: number): Way =>
  (size) =>
    size <= most ? 'answer' : 'lost'

/** The size that the search should find on a path that carries `most`, given the sizes that it tries. */
function expected(most: number, { floor, most: device }: SizeBounds): number {
  if (most >= device) return device
  return Math.max(floor, Math.floor(most / SIZE_STEP) * SIZE_STEP)
}

t.test('a way that becomes narrow is found within a second and a half', async (t) => {
  for (const most of [1439, 1400, 1240, 1220, 1216, 1000, 700]) {
    const at = newWalk()
    walk(at, wide, 5000)
    t.equal(sizeInUse(at.state), 1440)
    walk(at, narrow(most), 1500)
    t.equal(sizeInUse(at.state), expected(most, BOUNDS), `${most}: ${at.sizes.join(' ')}`)
  }
})

t.test('a way that is narrow from the beginning is found as soon', async (t) => {
  const at = newWalk()
  walk(at, narrow(1240), 1000)
  t.equal(sizeInUse(at.state), 1232)
})

t.test('where nothing flows it is found as soon as something does', async (t) => {
  const at = newWalk()
  walk(at, wide, 5000, false)
  t.ok(at.sent <= 2, `${at.sent} questions where nothing flows`)
  walk(at, narrow(1240), 500, false)
  walk(at, narrow(1240), 1500, true)
  t.equal(sizeInUse(at.state), 1232)
})

t.test('it grows again, and waits longer each time that this was wrong', async (t) => {
  const at = newWalk()
  walk(at, wide, 1000)
  walk(at, narrow(1240), 3000)
  walk(at, wide, 11_000)
  t.equal(sizeInUse(at.state), 1440, 'wide again')
  walk(at, narrow(1240), 2000)
  t.equal(sizeInUse(at.state), 1232, 'narrow again, too soon')
  const before = at.sizes.length
  walk(at, wide, 15_000)
  t.equal(at.sizes.length, before, 'not within 15 s')
  walk(at, wide, 6000)
  t.equal(sizeInUse(at.state), 1440)
})

t.test('a way that widens a little is found too', async (t) => {
  const at = newWalk()
  walk(at, narrow(1216), 2000)
  walk(at, narrow(1400), 11_000)
  t.equal(sizeInUse(at.state), 1392)
})

t.test('silence says nothing of sizes', async (t) => {
  const at = newWalk()
  walk(at, wide, 1000)
  walk(at, () => 'lost', 60_000)
  t.strictSame(at.sizes, [1440])
  walk(at, wide, 2000)
  t.strictSame(at.sizes, [1440])
})

t.test('a way on which nothing is answered is asked less and less often, and at once when it answers', async (t) => {
  const at = newWalk()
  walk(at, wide, 1000)
  walk(at, () => 'lost', 120_000)
  const before = at.sent
  walk(at, () => 'lost', 120_000)
  t.ok(at.sent - before <= 4 * 60, `${at.sent - before} questions in two minutes`)
  t.equal(sizeInUse(at.state), 1440)
  walk(at, narrow(1240), 62_000)
  t.equal(sizeInUse(at.state), 1232, 'it is found when something answers')
})

t.test('a device with another MTU', async (t) => {
  const at = newWalk()
  walk(at, wide, 1000)
  at.state = withBounds(at.state, { ...BOUNDS, most: 8940 }, at.nowMs)
  t.equal(sizeInUse(at.state), 8940, 'as large as it goes')
  walk(at, narrow(1440), 3000)
  t.equal(sizeInUse(at.state), 1440)
  at.state = withBounds(at.state, { ...BOUNDS, most: 1220 }, at.nowMs)
  walk(at, narrow(1440), 1000)
  t.equal(sizeInUse(at.state), 1220)
  at.state = withBounds(at.state, { ...BOUNDS, most: 8940 }, at.nowMs)
  walk(at, narrow(1440), 3000)
  t.equal(sizeInUse(at.state), 1440)
})

t.test('any width from 576 to that of the device is found, also where packets get lost', async () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 576, max: 9000 }),
      fc.integer({ min: 577, max: 9000 }),
      fc.integer({ min: 0, max: 14 }),
      fc.infiniteStream(fc.integer({ min: 0, max: 99 })),
      (most, device, lossPercent, dice) => {
        const bounds = { ...BOUNDS, most: device }
        const at = newWalk(bounds)
        const lossy: Way = (size) => (size > most || (dice.next().value ?? 0) < lossPercent ? 'lost' : 'answer')
        walk(at, lossy, 3000)
        walk(at, narrow(most), 70_000)
        assert.equal(sizeInUse(at.state), expected(most, bounds), `sizes ${at.sizes.join(' ')}`)
      },
    ),
    { numRuns: 300 },
  )
})

t.test('whatever a far end answers: within the bounds, few changes, few packets', async () => {
  fc.assert(
    fc.property(fc.infiniteStream(fc.boolean()), fc.boolean(), (answers, busy) => {
      const at = newWalk()
      walk(at, () => (answers.next().value === true ? 'answer' : 'lost'), 120_000, busy)
      assert.ok(at.sizes.every((size) => size >= BOUNDS.floor && size <= BOUNDS.most))
      assert.ok(at.sent < 120 * 60, `${at.sent} packets`)
    }),
    { numRuns: 100 },
  )
})

t.test('a far end that takes and refuses in turn makes it grow less and less often', async (t) => {
  const at = newWalk()
  const turns = 40
  for (let i = 0; i < turns; i += 1) {
    walk(at, wide, 15_000)
    walk(at, narrow(1240), 5000)
  }
  const grew = at.sizes.filter((size, i) => i > 0 && size > (at.sizes[i - 1] ?? 0) && size === 1440).length
  t.ok(grew <= 8, `grew ${grew} times in ${turns * 20} s`)
})
