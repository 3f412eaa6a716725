import fc from 'fast-check'
import t from 'tap'
import { type KeyedDiff, keyedDiff } from '../../reconcile/incremental.ts'

interface Item {
  readonly key: string
  readonly value: number
}

function diff(desired: readonly Item[], observed: readonly Item[]): KeyedDiff<Item, Item> {
  const keyOf = ({ key }: Item): string => key
  return keyedDiff({ desired, observed, desiredKey: keyOf, observedKey: keyOf, equal: (a, b) => a.value === b.value })
}

/** The difference as `+a ~b -c`. */
function text({ add, change, remove }: KeyedDiff<Item, Item>): string {
  return [
    ...add.map(({ key }) => `+${key}`),
    ...change.map(({ desired }) => `~${desired.key}`),
    ...remove.map(({ key }) => `-${key}`),
  ].join(' ')
}

const items = (spec: string): Item[] =>
  spec
    .split(' ')
    .filter(Boolean)
    .map((part) => ({ key: part.slice(0, 1), value: Number(part.slice(1)) }))

t.test('table', async (t) => {
  const rows = [
    { desired: '', observed: '', want: '' },
    { desired: 'b1 a1', observed: '', want: '+a +b' },
    { desired: '', observed: 'b1 a1', want: '-a -b' },
    { desired: 'a1 b2 c1', observed: 'd1 b1 a1', want: '+c ~b -d' },
    { desired: 'a1 a2', observed: 'a2', want: '' },
  ]
  for (const { desired, observed, want } of rows) {
    t.equal(text(diff(items(desired), items(observed))), want, `${observed || 'nothing'} to ${desired || 'nothing'}`)
  }
})

const arbitrary = fc.uniqueArray(
  fc.record({ key: fc.string({ maxLength: 3 }), value: fc.integer({ min: 0, max: 3 }) }),
  {
    selector: ({ key }) => key,
  },
)

t.test('applying the difference gives what is desired, and then nothing differs; order does not matter', async () => {
  fc.assert(
    fc.property(arbitrary, arbitrary, (desired, observed) => {
      const plan = diff(desired, observed)
      const world = new Map(observed.map((item) => [item.key, item]))
      for (const item of plan.add) {
        if (world.has(item.key)) return false
        world.set(item.key, item)
      }
      for (const item of plan.change) world.set(item.desired.key, item.desired)
      for (const item of plan.remove) if (!world.delete(item.key)) return false
      const mirrored = diff([...desired].reverse(), [...observed].reverse())
      return (
        text(diff(desired, [...world.values()])) === '' &&
        world.size === desired.length &&
        text(mirrored) === text(plan)
      )
    }),
  )
})
