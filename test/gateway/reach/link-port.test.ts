import t from 'tap'
import { linkPort } from '../../../gateway/reach/plan-candidates.ts'

const CASES: readonly (readonly [say: string, stated: number, of: number, from: number, port: number])[] = [
  ['one gateway on each side: what is stated', 4500, 0, 0, 4500],
  ['the same number on both sides: what is stated', 4503, 3, 3, 4503],
  ['gateway 2 calls gateway 0', 4500, 0, 2, 4502],
  ['gateway 0 calls gateway 2', 4502, 2, 0, 4500],
  ['gateway 1 calls gateway 2', 4502, 2, 1, 4501],
  ['the highest numbers', 4507, 7, 6, 4506],
  ['a base port of its own', 61_003, 3, 1, 61_001],
  ['no port: whoever calls there refuses it', 3, 7, 0, -4],
]

for (const [say, stated, of, from, port] of CASES) {
  t.equal(linkPort({ stated, of, from }), port, say)
}

t.test('no two devices of a gateway listen on one port, and each far gateway calls its own device', (t) => {
  const numbers = [0, 1, 2, 3, 4, 5, 6, 7]
  for (const own of numbers) {
    const listens = numbers.map((remote) => linkPort({ stated: 4500 + own, of: own, from: remote }))
    t.strictSame(
      listens,
      numbers.map((remote) => 4500 + remote),
    )
  }
  t.end()
})
