/** How long what is wanted waits for the broker: one change at a time. */
import t from 'tap'
import { AcknowledgeDelay } from '../../protocol/sessions/acknowledge-delay.ts'
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
