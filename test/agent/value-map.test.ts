/** A map that is an immutable value. */
import fc from 'fast-check'
import t from 'tap'
import { ValueMap } from '../../reconcile/incremental.ts'

const CHANGES = fc.array(fc.tuple(fc.integer({ min: 0, max: 120 }), fc.option(fc.nat(), { nil: undefined })), {
  maxLength: 40,
})

t.test('it is what a map is that is changed in place, and every earlier one stays as it was', async (t) => {
  fc.assert(
    fc.property(fc.array(CHANGES, { maxLength: 12 }), (steps) => {
      const model = new Map<number, number>()
      let map = new ValueMap<number, number>()
      const earlier: {
        readonly map: ValueMap<number, number>
        readonly entries: readonly (readonly [number, number])[]
      }[] = []
      for (const step of steps) {
        const changes = new Map(step)
        for (const [key, value] of changes) {
          model.delete(key)
          if (value !== undefined) model.set(key, value)
        }
        map = map.with(changes)
        earlier.push({ map, entries: [...model] })
      }
      return earlier.every(({ map, entries }) => {
        const known = new Map(entries)
        const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b)
        const seen: unknown[] = []
        map.forEach((value, key) => seen.push([key, value]))
        return (
          map.size === entries.length &&
          same([...map], entries) &&
          same(seen, entries) &&
          same([...map.keys()], [...known.keys()]) &&
          same([...map.values()], [...known.values()]) &&
          Array.from({ length: 121 }, (_, key) => key).every((key) => map.get(key) === known.get(key)) &&
          Array.from({ length: 121 }, (_, key) => key).every((key) => map.has(key) === known.has(key))
        )
      })
    }),
    { numRuns: 300 },
  )
  t.pass('300 histories')
})

t.test('what changes nothing gives the same map', async (t) => {
  const map = new ValueMap(new Map([['a', 1]]))
  t.equal(map.with(new Map()), map)
  t.equal(map.with(new Map([['b', undefined]])), map)
  t.not(map.with(new Map([['a', undefined]])), map)
})
