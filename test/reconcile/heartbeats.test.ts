import fc from 'fast-check'
import t from 'tap'
import { FakeClock } from '../../reconcile/fake-clock.ts'
import { Heartbeats } from '../../reconcile/failure-detector.ts'

const RULE = { staleMs: 15_000, suspectMs: 7000, gapMs: 8000 }

/**
 * `5 a` means that after 5 s a moves; `2 ?` means that after 2 s the store is read and answers. Returns those that have
 * stopped at the end.
 */
async function stoppedAfter(steps: string): Promise<string> {
  const clock = new FakeClock()
  const beats = new Heartbeats({ clock }, RULE)
  let count = 0
  for (const name of ['a', 'b']) beats.saw(name, 'first')
  for (const step of steps.split(', ').filter((one) => one !== '')) {
    const [seconds = '', what = ''] = step.split(' ')
    await clock.advance(Number(seconds) * 1000)
    if (what === '?') beats.viewIsLive()
    else for (const name of what) beats.saw(name, `beat ${(count += 1)}`)
  }
  return beats.stopped().join('')
}

t.test('what has stopped', async (t) => {
  const rows: readonly (readonly [say: string, steps: string, want: string])[] = [
    ['nothing was heard, nothing is known', '', ''],
    ['hours without any sign: the view may be dead', '10000 ', ''],
    ['one moves, the other does not', '5 a, 5 a, 5 a', 'b'],
    ['not yet', '5 a, 5 a, 4.9 a', ''],
    ['all stand still, and the store answers all the time', '7 ?, 4 ?, 4 ?', 'ab'],
    ['the store answers once, late: nothing about the time before', '60 ?', ''],
    ['the store comes back after an outage: everybody gets the whole time again', '60 ?, 4 ?, 4 ?, 4 ?', ''],
    ['and not more than that', '60 ?, 4 ?, 4 ?, 4 ?, 4 ?', 'ab'],
    ['after the outage one moves again, and the other does not', '60 a, 5 a, 5 a, 5 a', 'b'],
    ['what has stopped stays so over an outage', '5 a, 5 a, 5 a, 300 a', 'b'],
    ['and is back with the first move', '5 a, 5 a, 5 a, 300 b', ''],
    ['outages one after the other', '7 ?, 9 ?, 9 ?, 9 ?, 9 ?, 9 ?', ''],
    ['a heartbeat that moves in the last moment', '7 ?, 4 ?, 3.9 ab', ''],
  ]
  for (const [say, steps, want] of rows) t.equal(await stoppedAfter(steps), want, say)
})

t.test('who is to be asked for', async (t) => {
  const clock = new FakeClock()
  const beats = new Heartbeats({ clock }, RULE)
  beats.saw('b', '1')
  beats.saw('a', '1')
  beats.saw('old release', undefined)
  await clock.advance(6999)
  t.strictSame(beats.doubtful(), [])
  await clock.advance(1)
  t.strictSame(beats.doubtful(), ['a', 'b'])
  beats.saw('b', '2')
  beats.saw('a', '1')
  t.strictSame(beats.doubtful(), ['a'], 'the same text again is no move')
  beats.forget('a')
  t.strictSame(beats.doubtful(), [])
})

t.test('one that does not tell is never taken as stopped, also when it told once', async (t) => {
  const clock = new FakeClock()
  const beats = new Heartbeats({ clock }, RULE)
  beats.saw('a', '1')
  beats.saw('a', undefined)
  for (let i = 0; i < 20; i += 1) {
    await clock.advance(4000)
    beats.viewIsLive()
  }
  t.notOk(beats.hasStopped('a'))
  t.notOk(beats.hasStopped('never seen'))
})

t.test('any history: nobody is taken as stopped who moved within the time, or while nothing was proved', async () => {
  const step = fc.record({ ms: fc.integer({ min: 0, max: 12_000 }), what: fc.constantFrom('a', 'b', 'ask', 'nothing') })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
      const clock = new FakeClock()
      const beats = new Heartbeats({ clock }, RULE)
      const moved = { a: 0, b: 0 }
      let count = 0
      /** The monotonic times of the proofs. */
      const proofs = [0]
      for (const name of ['a', 'b']) beats.saw(name, 'first')
      for (const { ms, what } of steps) {
        await clock.advance(ms)
        const before = beats.stopped()
        const now = clock.monotonic()
        if (what === 'a' || what === 'b') {
          beats.saw(what, String((count += 1)))
          moved[what] = now
        }
        if (what === 'ask') beats.viewIsLive()
        if (what !== 'nothing') proofs.push(now)
        for (const name of ['a', 'b'] as const) {
          if (!beats.hasStopped(name) || before.includes(name)) continue
          // A newly stopped name needs proofs without a gap since its last move, or since some proof 15 s ago.
          if (what === 'nothing' || now - moved[name] < RULE.staleMs) return false
          const covering = proofs.filter((at) => at > now - RULE.staleMs)
          const start = [...proofs].reverse().find((at) => at <= now - RULE.staleMs) ?? -Infinity
          const chain = [start, ...covering]
          if (chain.some((at, i) => i > 0 && at - (chain[i - 1] ?? -Infinity) > RULE.gapMs)) return false
        }
      }
      return true
    }),
    { numRuns: 300 },
  )
})
