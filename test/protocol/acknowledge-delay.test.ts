/** How long a wanted change waits for the broker's acknowledgement; one change is measured at a time. */
import t from 'tap'
import { AcknowledgeDelay } from '../../protocol/sessions/session-metrics.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'

function stage() {
  const clock = new FakeClock()
  const seen: number[] = []
  return { clock, seen, delay: new AcknowledgeDelay(clock, (seconds) => void seen.push(seconds)) }
}

t.test('from when it was wanted until it is acknowledged', async (t) => {
  const { clock, seen, delay } = stage()
  for (const sequence of [1, 2, 3]) {
    delay.wanted()
    await clock.advance(500)
    delay.sent(sequence)
    await clock.advance(1500)
    delay.acknowledged(sequence)
    delay.acknowledged(sequence)
  }
  t.same(seen, [2, 2, 2])
})

t.test('how long the broker takes at least, once three changes have shown it, for a while', async (t) => {
  const { clock, delay } = stage()
  const change = async (sequence: number, ms: number): Promise<void> => {
    delay.wanted()
    await clock.advance(2000)
    delay.sent(sequence)
    await clock.advance(ms)
    delay.acknowledged(sequence)
  }
  await change(1, 900)
  await change(2, 800)
  t.equal(delay.answeredMs, undefined, 'two say nothing')
  await change(3, 700)
  t.equal(delay.answeredMs, 700, 'that it waited before does not count')
  await change(4, 20)
  t.equal(delay.answeredMs, 20, 'one that is quick is enough')
  for (const sequence of [5, 6, 7]) await change(sequence, 600)
  t.equal(delay.answeredMs, 600)
  await clock.advance(60_001)
  t.equal(delay.answeredMs, undefined, 'it was long ago')
})

t.test('what comes while one is followed counts from its own time', async (t) => {
  const { clock, seen, delay } = stage()
  delay.wanted()
  delay.sent(1)
  await clock.advance(1000)
  delay.wanted()
  delay.sent(2)
  await clock.advance(1000)
  delay.acknowledged(1)
  delay.sent(3)
  await clock.advance(1000)
  delay.acknowledged(2)
  delay.acknowledged(3)
  t.same(seen, [2, 2])
})

t.test('the time without a connection counts', async (t) => {
  const { clock, seen, delay } = stage()
  delay.wanted()
  delay.sent(1)
  await clock.advance(1000)
  delay.lost()
  await clock.advance(60_000)
  delay.wanted()
  delay.sent(2)
  delay.acknowledged(2)
  t.same(seen, [61])
})

t.test('what the broker had before is no delay, nor an acknowledgement of what nobody followed', async (t) => {
  const { clock, seen, delay } = stage()
  delay.wanted()
  await clock.advance(1000)
  delay.settled()
  delay.sent(1)
  delay.acknowledged(1)
  delay.lost()
  t.same(seen, [])
})
