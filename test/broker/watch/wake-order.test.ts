import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { WakeOrder } from '../../../broker/sessions/live-batches.ts'

const noTimer = (): never => {
  throw new Error('no rest was due')
}
const still = { monotonic: (): number => 0, setTimer: noTimer }

t.test('a thousand streams are woken in slices, and others get turns between', async (t) => {
  const order = new WakeOrder(still)
  let woken = 0
  order.wake(Array.from({ length: 1000 }, () => () => void (woken += 1)))
  const after: number[] = [woken]
  while (woken < 1000) {
    await turn()
    after.push(woken)
  }
  t.ok(after.length > 3, `in ${after.length} turns`)
  t.ok((after[0] ?? 0) < 100, 'the first turn has a slice of them')
})

t.test('who is due is woken once, and one that was forgotten not at all', async (t) => {
  const order = new WakeOrder(still)
  const counts = Array.from({ length: 200 }, () => 0)
  const streams = counts.map((_, i) => () => void (counts[i] = (counts[i] ?? 0) + 1))
  order.wake(streams)
  order.wake(streams.slice(100))
  const last = streams[199]
  if (last !== undefined) order.forget(last)
  for (let i = 0; i < 20; i += 1) await turn()
  t.same([...new Set(counts.slice(0, 199))], [1])
  t.equal(counts[199], 0)
})

t.test('where a turn takes long, the next ones are shorter', async (t) => {
  let now = 0
  const order = new WakeOrder({ monotonic: () => now, setTimer: () => () => undefined })
  const sizes: number[] = []
  let size = 0
  order.wake(
    Array.from({ length: 600 }, () => () => {
      size += 1
      now += 1
    }),
  )
  for (let i = 0; i < 40; i += 1) {
    if (size > 0) sizes.push(size)
    size = 0
    await turn()
  }
  t.equal(
    sizes.reduce((sum, one) => sum + one, 0),
    600,
  )
  t.ok(Math.min(...sizes.slice(3, -1)) === 16, `sizes ${sizes.join()}`)
})

/** A clock that moves when a stream does work, and that records the timers. */
function workClock() {
  const timers: { readonly ms: number; readonly run: () => void }[] = []
  const clock = {
    now: 0,
    monotonic: (): number => clock.now,
    setTimer: (ms: number, run: () => void) => {
      timers.push({ ms, run })
      return () => void timers.splice(0)
    },
  }
  return { clock, timers }
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i += 1) await turn()
}

/** Returns this many streams. Each takes a millisecond of the clock when it is woken. */
function slowStreams(count: number, clock: { now: number }) {
  const woken: number[] = []
  const streams = Array.from({ length: count }, (_, i) => () => {
    woken.push(i)
    clock.now += 1
  })
  return { streams, woken }
}

t.test('what changes while streams are woken waits for as long as that took, and comes once', async (t) => {
  const { clock, timers } = workClock()
  const order = new WakeOrder(clock)
  const { streams, woken } = slowStreams(70, clock)
  order.wake(streams)
  for (let round = 1; round <= 4; round += 1) {
    order.wake(streams)
    t.ok(woken.length < 70, `round ${round}: a slice is first`)
    for (let again = 0; again < 8; again += 1) {
      await turn()
      order.wake(streams)
    }
    t.same(
      woken.toSorted((a, b) => a - b),
      streams.map((_, i) => i),
      `round ${round}: each once, however often`,
    )
    const rest = timers.splice(0)
    t.same(
      rest.map(({ ms }) => ms),
      [70],
      `round ${round}: the rest is as long as the work`,
    )
    woken.length = 0
    rest[0]?.run()
    t.ok(woken.length > 0, `round ${round}: then the next one begins`)
  }
})

t.test('after a rest in which nothing came the next change goes out at once', async (t) => {
  const { clock, timers } = workClock()
  const order = new WakeOrder(clock)
  const { streams, woken } = slowStreams(70, clock)
  order.wake(streams)
  await turns(9)
  timers.splice(0)[0]?.run()
  t.equal(woken.length, 70)
  order.wake(streams)
  t.ok(woken.length > 70)
})

t.test('a few streams do not rest, and of many the rest is a tenth of a second at most', async (t) => {
  const { clock, timers } = workClock()
  const order = new WakeOrder(clock)
  const { streams } = slowStreams(16, clock)
  clock.now += 1000
  order.wake(streams)
  await turns(3)
  t.same(timers, [])
  const more = slowStreams(300, clock)
  order.wake(more.streams)
  await turns(30)
  t.equal(more.woken.length, 300)
  t.same(
    timers.map(({ ms }) => ms),
    [100],
  )
})

t.test('one that is forgotten in a rest is not woken after it, and none after the end', async (t) => {
  const { clock, timers } = workClock()
  const order = new WakeOrder(clock)
  const { streams, woken } = slowStreams(20, clock)
  order.wake(streams)
  await turns(3)
  woken.length = 0
  order.wake(streams)
  for (const stream of streams.slice(0, 15)) order.forget(stream)
  timers.splice(0)[0]?.run()
  t.same(woken, [15, 16, 17, 18, 19])
  await turns(3)
  order.wake(streams)
  const before = woken.length
  order.close()
  await turns(3)
  t.same([timers.length, woken.length], [0, before])
})
