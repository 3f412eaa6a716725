/** When a replica may try to write: a table of past writes and the wait that follows from them. */
import fc from 'fast-check'
import t from 'tap'
import { WriteRotation } from '../../../broker/store/etcd/write-order.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const { signal } = new AbortController()

/** Returns a rotation that has seen these writes, each as [milliseconds before now, replica], oldest first. */
async function rotation(writes: readonly (readonly [agoMs: number, replica: string])[], replica = 'own') {
  const clock = new FakeClock()
  const own = new WriteRotation(clock, replica)
  let atMs = Math.max(0, ...writes.map(([agoMs]) => agoMs))
  for (const [agoMs, writer] of writes) {
    await clock.advance(atMs - agoMs)
    atMs = agoMs
    own.see({ writes: [`${writer}.1`] })
  }
  await clock.advance(atMs)
  return { clock, own }
}

/** Returns how long the replica waits, in steps of a millisecond, while no replica writes. */
async function waits({ clock, own }: Awaited<ReturnType<typeof rotation>>): Promise<number> {
  const state = { isOver: false }
  const done = own.await(signal).then((hasWaited) => {
    state.isOver = true
    return hasWaited
  })
  let ms = 0
  await clock.advance(0)
  for (; !state.isOver && ms < 1000; ms += 1) await clock.advance(1)
  if ((await done) !== ms > 0) throw new Error('it says otherwise')
  return ms
}

const WAITS: Readonly<Record<string, readonly [writes: Parameters<typeof rotation>[0], ms: number]>> = {
  'nobody has written': [[], 0],
  'only this one writes': [
    [
      [20, 'own'],
      [10, 'own'],
      [0, 'own'],
    ],
    0,
  ],
  'this one wrote longest ago': [
    [
      [20, 'own'],
      [10, 'b'],
      [0, 'c'],
    ],
    0,
  ],
  'one wrote before': [
    [
      [10, 'b'],
      [0, 'own'],
    ],
    30,
  ],
  'two wrote before': [
    [
      [20, 'b'],
      [10, 'c'],
      [0, 'own'],
    ],
    60,
  ],
  'three wrote before, and a while has passed': [
    [
      [30, 'b'],
      [25, 'c'],
      [20, 'd'],
      [15, 'own'],
    ],
    75,
  ],
  'the others wrote long ago': [
    [
      [500, 'b'],
      [400, 'c'],
      [0, 'own'],
    ],
    0,
  ],
  'one of them wrote long ago': [
    [
      [500, 'b'],
      [40, 'c'],
      [0, 'own'],
    ],
    30,
  ],
  'this one has not written lately': [
    [
      [500, 'own'],
      [10, 'b'],
      [0, 'c'],
    ],
    0,
  ],
}

for (const [name, [writes, ms]] of Object.entries(WAITS)) {
  t.test(name, async (t) => t.equal(await waits(await rotation(writes)), ms))
}

t.test('a write of those before it, or of others, changes whose time it is at once', async (t) => {
  const at = await rotation([
    [20, 'b'],
    [10, 'c'],
    [0, 'own'],
  ])
  let isOver = false
  const done = at.own.await(signal).then(() => (isOver = true))
  await at.clock.advance(5)
  at.own.see({ writes: ['b.2', 'own.1'] })
  await at.clock.advance(5)
  t.equal(isOver, false, 'c is next')
  at.own.see({ writes: ['c.2', 'b.2', 'own.1'] })
  await at.clock.advance(0)
  await done
  t.equal(isOver, true)
})

t.test('what is given to each follows what writes take, within bounds', async (t) => {
  for (const [took, least, most] of [
    [0, 6, 7],
    [10, 18, 22],
    [100_000, 500, 501],
  ] as const) {
    const at = await rotation([])
    for (let i = 0; i < 50; i += 1) at.own.took(took)
    at.own.see({ writes: ['b.1'] })
    at.own.see({ writes: ['own.1'] })
    const ms = await waits(at)
    t.ok(ms >= least && ms <= most, `${took} ms: ${ms}`)
  }
})

t.test('it ends with the signal', async (t) => {
  const { own } = await rotation([
    [10, 'b'],
    [0, 'own'],
  ])
  await t.rejects(own.await(AbortSignal.abort(new Error('over'))), { message: 'over' })
})

t.test('whoever writes, no two of the same knowledge try at once, and nobody waits for long', async () => {
  const names = ['a', 'b', 'c', 'd']
  const history = fc.array(fc.tuple(fc.constantFrom(...names), fc.integer({ min: 0, max: 20 })), { maxLength: 30 })
  await fc.assert(
    fc.asyncProperty(history, async (events) => {
      let agoMs = 0
      const writes = events.map(([writer, gap]) => [(agoMs += gap), writer] as const).sort(([a], [b]) => b - a)
      const times = await Promise.all(names.map(async (one) => waits(await rotation(writes, one))))
      const active = new Set(writes.filter(([at]) => at <= 120).map(([, writer]) => writer))
      const own = names.flatMap((one, i) => (active.has(one) ? [times[i] ?? 0] : []))
      // Once the last write is older than one slot, two replicas may try at the same time.
      const isFresh = (writes.at(-1)?.[0] ?? 0) < 30
      const areApart = new Set(own).size === own.length || !isFresh
      return areApart && times.every((ms) => ms <= 30 * (names.length - 1))
    }),
    { numRuns: 60 },
  )
})
