/** Reads TAP output that is complete, cut off, or full of lines that look like results. */
import fc from 'fast-check'
import t from 'tap'
import { partsOfBatch, readTap } from '../tap-record.ts'

const said = (text: string): string =>
  readTap(text)
    .cases.map(({ name, state, reason }) => `${name}: ${state}${reason === '' ? '' : ` ${reason}`}`)
    .join('\n')

const ROWS: readonly (readonly [what: string, tap: string, cases: string])[] = [
  [
    'tests in tests',
    `# Subtest: a\n    # Subtest: b\n        ok 1 - x\n    ok 1 - b # time=1ms\nok 1 - a # time=2ms\n`,
    'a > b: passed',
  ],
  [
    'an assertion of a test that has others in it',
    `# Subtest: a\n    # Subtest: b\n    ok 1 - b\n    not ok 2 - x\nnot ok 1 - a\n`,
    'a > b: passed\na: failed',
  ],
  ['a test that fails in another', `# Subtest: a\n    # Subtest: b\n    not ok 1 - b\nnot ok 1 - a\n`, 'a > b: failed'],
  ['a test that has no end', `# Subtest: a\n    ok 1 - x\n`, 'a: failed'],
  ['a test with braces', `ok 1 - a # time=1ms {\n    ok 1 - x\n    1..1\n}\n`, 'all of it: passed'],
  ['a skip', `ok 1 - a # SKIP no moon\n`, 'a: skipped no moon'],
  ['a file that is skipped', `1..0 # no moon\n`, 'all of it: skipped no moon'],
  ['nothing', '', ''],
  ['an assertion outside', `ok 1 - x\n`, 'all of it: passed'],
  ['an assertion outside that fails', `# Subtest: a\nok 1 - a\nnot ok 2 - x\n`, 'all of it: failed\na: passed'],
  [
    'diagnostics that look like tests',
    `# Subtest: a\n    not ok 1 - x\n      ---\n      diff: |\n        not ok 7 - y\n        # Subtest: c\n      ...\nnot ok 1 - a\n`,
    'a: failed',
  ],
  ['a name with a number sign', `# Subtest: issue # 7\nok 1 - issue # 7 # time=1ms\n`, 'issue # 7: passed'],
]

t.test('cases', async (t) => {
  for (const [what, tap, cases] of ROWS) t.equal(said(tap), cases, what)
})

t.test('assertions are counted at any depth', async (t) => {
  const tap = `ok 1 - x\n# Subtest: a\n    ok 1 - x\n    # Subtest: b\n        not ok 1 - x\n    not ok 2 - b\nnot ok 2 - a\n`
  t.same(readTap(tap).assertions, { passed: 2, failed: 1 })
})

interface Tree {
  readonly name: string
  readonly ok: boolean
  readonly tests: readonly Tree[]
}

const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.record({
    name: fc.stringMatching(/^[a-z][a-z #>-]{0,8}[a-z]$/),
    ok: fc.boolean(),
    tests: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constant([]),
      fc.array(tie('tree'), { maxLength: 3 }),
    ),
  }),
}))

const failed = ({ ok, tests }: Tree): boolean => !ok || tests.some(failed)
const leaves = (one: Tree): number =>
  one.tests.length === 0 ? 1 : one.tests.reduce((sum, inner) => sum + leaves(inner), 0)

function print(one: Tree, place: number): string {
  const inside = one.tests.map(print).join('') + (one.ok ? '' : `not ok ${one.tests.length + 1} - an assertion\n`)
  const not = failed(one) ? 'not ' : ''
  return `# Subtest: ${one.name}\n${inside.replace(/^(?=.)/gm, '    ')}${not}ok ${place + 1} - ${one.name} # time=1ms\n`
}

t.test('whatever is printed is read again', async () => {
  fc.assert(
    fc.property(fc.array(tree, { maxLength: 4 }), (trees) => {
      const { cases } = readTap(trees.map(print).join(''))
      const all = trees.reduce((sum, one) => sum + leaves(one), 0)
      if (cases.length < all) throw new Error(`${cases.length} of ${all} are seen`)
      return cases.some(({ state }) => state === 'failed') === trees.some(failed)
    }),
  )
  fc.assert(fc.property(fc.string(), (text) => readTap(text).cases.length >= 0 && partsOfBatch(text).size >= 0))
})

t.test('a batch is taken apart by its files', async (t) => {
  const tap = `TAP version 14
# Subtest: test/a.test.ts
    # Subtest: one
        ok 1 - x
    ok 1 - one # time=1ms
    1..1
ok 1 - test/a.test.ts # time=12.5ms
# Subtest: test/b.test.ts
    not ok 1 - x
not ok 2 - test/b.test.ts # time=1ms
# Subtest: test/c.test.ts
    # Subtest: two
`
  t.same(
    [...partsOfBatch(tap)].map(([file, { output, isOk, ms }]) => [file, said(output), isOk, ms]),
    [
      ['test/a.test.ts', 'one: passed', true, 12.5],
      ['test/b.test.ts', 'all of it: failed', false, 1],
      ['test/c.test.ts', 'two: failed', undefined, 0],
    ],
  )
})
