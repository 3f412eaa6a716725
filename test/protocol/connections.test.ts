/** Places and turns: the pure part of what the broker's port admits. */
import fc from 'fast-check'
import t from 'tap'
import { FairPool } from '../../protocol/transport/connections.ts'

t.test('who has most gives up its oldest', (t) => {
  const pool = new FairPool<string>({ total: 4 })
  for (const one of ['a1', 'a2', 'a3', 'b1']) t.equal(pool.add(one.slice(0, 1), one), undefined)
  t.equal(pool.add('c', 'c1'), 'a1', 'a newcomer gets a place from the one that floods')
  t.equal(pool.add('a', 'a4'), 'a2', 'which takes the next from itself')
  t.equal(pool.size, 4)
  t.same([pool.take(), pool.take(), pool.take(), pool.take(), pool.take()], ['a3', 'b1', 'c1', 'a4', undefined])
  t.end()
})

t.test('a limit of each', (t) => {
  const pool = new FairPool<number>({ total: 100, perKey: 2 })
  t.same(
    [1, 2, 3, 4].map((i) => pool.add('a', i)),
    [undefined, undefined, 1, 2],
  )
  t.equal(pool.count('a'), 2)
  t.ok(pool.delete('a', 3))
  t.notOk(pool.delete('a', 3))
  t.equal(pool.add('a', 4), undefined, 'one that is there has its place')
  t.end()
})

t.test('never more than there may be, and one alone never loses its only place to a flood', (t) => {
  const key = fc.constantFrom('flood', 'flood', 'flood', 'flood', 'b', 'c')
  fc.assert(
    fc.property(fc.array(key, { maxLength: 200 }), fc.integer({ min: 3, max: 20 }), (keys, total) => {
      const pool = new FairPool<number>({ total })
      const held = new Map<number, string>()
      for (const [i, one] of keys.entries()) {
        const before = new Map([...new Set(held.values())].map((name) => [name, pool.count(name)]))
        held.set(i, one)
        const out = pool.add(one, i)
        if (out === undefined) continue
        const loser = held.get(out)
        held.delete(out)
        if (loser !== one && (before.get(loser ?? '') ?? 0) <= 1) return false
      }
      return pool.size <= total && pool.size === held.size
    }),
  )
  t.end()
})
