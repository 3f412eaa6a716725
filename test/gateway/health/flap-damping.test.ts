/** How long a link is avoided after it has gone down repeatedly. */
import fc from 'fast-check'
import t from 'tap'
import {
  FIRST_HOLD_MS,
  FlapDamping,
  type FlapRecord,
  HALF_LIFE_MS,
  MAX_HOLD_MS,
  MAX_PENALTY,
  afterDown,
  penaltyAt,
} from '../../../gateway/health/flap-damping.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

/** The seconds at which the link goes down, and for how many seconds it is held out of use after each. */
const ROWS: [say: string, downs: number[], holds: number[]][] = [
  ['once', [0], [0]],
  ['three times in a row', [0, 3, 6], [0, 0, 0]],
  ['the fourth time', [0, 3, 6, 9], [0, 0, 0, 17]],
  ['it doubles', [0, 0, 0, 0, 0, 0], [0, 0, 0, 20, 40, 80]],
  ['and has an end', [0, 0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 20, 40, 80, 160, 300, 300, 300]],
  ['each half minute', Array.from({ length: 8 }, (_, i) => 30 * i), [0, 0, 0, 0, 0, 0, 11, 11]],
  ['each minute', Array.from({ length: 20 }, (_, i) => 60 * i), Array.from({ length: 20 }, () => 0)],
  ['a quiet time in between', [0, 0, 0, 0, 300, 300], [0, 0, 0, 20, 0, 0]],
]

t.test('holds', async (t) => {
  for (const [say, downs, holds] of ROWS) {
    let record: FlapRecord | undefined
    const found = downs.map((second) => {
      record = afterDown(record, second * 1000)
      return Math.max(0, Math.round(record.heldUntilMs / 1000 - second))
    })
    t.strictSame(found, holds, say)
  }
})

t.test('whatever comes, a hold is bounded, never grows shorter, and what counted fades', async () => {
  const pauses = fc.array(fc.integer({ min: 0, max: 600_000 }), { maxLength: 50 })
  fc.assert(
    fc.property(pauses, fc.integer({ min: 0, max: 3_600_000 }), (some, laterMs) => {
      let record: FlapRecord | undefined
      let nowMs = 0
      for (const pause of some) {
        nowMs += pause
        const before: FlapRecord | undefined = record
        record = afterDown(before, nowMs)
        if (record.penalty < 1 || record.penalty > MAX_PENALTY) return false
        if (record.heldUntilMs > nowMs + MAX_HOLD_MS) return false
        if (before !== undefined && record.heldUntilMs < before.heldUntilMs) return false
      }
      if (record === undefined) return true
      const later = penaltyAt(record, nowMs + laterMs)
      const half = penaltyAt(record, nowMs + HALF_LIFE_MS)
      return later <= record.penalty && Math.abs(half - record.penalty / 2) < 1e-9
    }),
  )
})

t.test(
  'a link is held, its time is told, and it is released once; what is no link any more is forgotten',
  async (t) => {
    const clock = new FakeClock()
    const released: string[] = []
    const damping = new FlapDamping({ clock, onRelease: (key) => released.push(key) })
    const downs = (key: string, times: number): boolean[] => Array.from({ length: times }, () => damping.onDown(key))
    t.strictSame(downs('0/paris', 3), [false, false, false])
    t.equal(damping.heldUntil('0/paris'), undefined)
    t.strictSame(downs('0/paris', 2), [true, false], 'told once')
    t.equal(damping.heldUntil('0/paris'), clock.now() + 4 * FIRST_HOLD_MS)
    t.equal(damping.heldUntil('1/paris'), undefined, 'each link by itself')
    await clock.advance(4 * FIRST_HOLD_MS - 1)
    t.strictSame(released, [])
    await clock.advance(1)
    t.strictSame(released, ['0/paris'])
    t.equal(damping.heldUntil('0/paris'), undefined)
    t.strictSame(downs('1/paris', 4).at(-1), true)
    damping.keep(new Set(['0/paris']))
    t.equal(damping.heldUntil('1/paris'), undefined)
    t.strictSame(downs('1/paris', 1), [false], 'it begins anew')
    t.strictSame(downs('0/paris', 3).at(-1), false, 'held already')
    damping.close()
    t.strictSame(clock.pending(), [])
    t.strictSame(released, ['0/paris'])
  },
)
