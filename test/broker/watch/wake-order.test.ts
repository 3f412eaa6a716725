import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { WakeOrder } from '../../../broker/watch/wake-order.ts'

const still = { monotonic: (): number => 0 }

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
  const order = new WakeOrder({ monotonic: () => now })
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
