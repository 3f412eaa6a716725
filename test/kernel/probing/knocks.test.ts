/** TCP probes to a far kernel: how long each is open, and how long the last miss waits for them. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { LONGEST_ANSWER_MS, answerWaitMs } from '../../../kernel/probing/answer-wait.ts'
import { TCP_PROBE_LIFE_MS, TcpProbes } from '../../../kernel/probing/probed-peer.ts'
import type { ProbeFigures } from '../../../kernel/probing/peer-health.ts'

t.test('a knock lives for two seconds, whatever is knocked meanwhile', async (t) => {
  const knocks = new TcpProbes()
  const ended: number[] = []
  for (let nowMs = 0; nowMs < 3000; nowMs += 200) {
    knocks.expire(nowMs)
    knocks.add(nowMs, () => ended.push(nowMs))
  }
  t.strictSame(ended, [0, 200, 400, 600, 800])
  t.equal(knocks.size, 10)
  knocks.stop()
  t.equal(ended.length, 15)
  t.equal(knocks.size, 0)
})

const ROWS: readonly (readonly [say: string, figures: ProbeFigures, waitsMs: number])[] = [
  ['a near one is not waited for', { rttMs: 0.4, jitterMs: 0.1 }, 1],
  ['250 ms', { rttMs: 250, jitterMs: 1 }, 379],
  ['500 ms', { rttMs: 500, jitterMs: 0 }, 750],
  ['one that varies', { rttMs: 100, jitterMs: 50 }, 350],
  ['never longer than a knock lives', { rttMs: 5000, jitterMs: 900 }, TCP_PROBE_LIFE_MS],
  ['nothing is known of the way', {}, TCP_PROBE_LIFE_MS],
]

t.test('the last miss waits as long as the way takes', async (t) => {
  for (const [say, figures, waitsMs] of ROWS) {
    const knocks = new TcpProbes()
    t.equal(knocks.mayYetAnswer(0, figures), false, `${say}: not before the first knock`)
    for (const nowMs of [1000, 1200, 1400]) knocks.add(nowMs, undefined)
    t.equal(knocks.mayYetAnswer(1000 + waitsMs - 1, figures), true, say)
    t.equal(knocks.mayYetAnswer(1000 + waitsMs, figures), false, say)
    knocks.silenceEnds()
    t.equal(knocks.mayYetAnswer(1401, figures), false, `${say}: the silence is over`)
  }
})

t.test('how long an answer may take: by RFC 6298, within bounds', async (t) => {
  const rows: readonly (readonly [trip: ProbeFigures, leastMs: number, waitMs: number])[] = [
    [{}, 1000, 1000],
    [{ rttMs: 300 }, 1000, 1000],
    [{ rttMs: 400 }, 1000, 1200],
    [{ rttMs: 1600 }, 1000, 4800],
    [{ rttMs: 2400 }, 1000, LONGEST_ANSWER_MS],
    [{ rttMs: 1600, jitterMs: 0 }, 50, 2400],
    [{ rttMs: 1600, jitterMs: 200 }, 50, 3200],
    [{ rttMs: 4000, jitterMs: 1000 }, 50, LONGEST_ANSWER_MS],
  ]
  for (const [trip, leastMs, waitMs] of rows) t.equal(answerWaitMs(trip, leastMs), waitMs, JSON.stringify(trip))
})

t.test('whatever the far end makes of the figures, there are few of them and they end', async (t) => {
  const figures = fc.record({ rttMs: fc.double({ min: 0, noNaN: true }), jitterMs: fc.double({ min: 0, noNaN: true }) })
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 200, max: 5000 }), { maxLength: 60 }), figures, (pauses, of) => {
      const knocks = new TcpProbes()
      let nowMs = 0
      for (const pause of pauses) {
        nowMs += pause
        knocks.expire(nowMs)
        knocks.add(nowMs, () => undefined)
        assert.ok(knocks.size <= TCP_PROBE_LIFE_MS / 200)
      }
      assert.equal(knocks.mayYetAnswer(nowMs + TCP_PROBE_LIFE_MS, of), false)
    }),
  )
  t.pass()
})
