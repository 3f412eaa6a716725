/** A required tier reports the tests that it skips. */
import t from 'tap'
import { skippedTests } from '../run-tier.ts'
import { missingWhereRequired } from '../run-tiers.ts'
import { TIERS } from '../tiers.ts'
import { type Turns, parseTurn, shareOf } from '../turns.ts'
import { chooseFiles } from '../choose-files.ts'

// The word is split because the check for left-over notes forbids it in a file.
const LATER = 'TO' + 'DO'
const OUTPUT = `TAP version 14
ok 1 - needs the moon # SKIP no moon here
# Subtest: outer
    ok 1 - fine
    ok 2 - an assertion # SKIP
    ok 3 - later # ${LATER} not yet
    # Subtest: inner
        ok 1 - deep # skip too deep
        1..1
    ok 4 - inner # time=1ms
    1..4
ok 2 - outer # time=4.8ms
1..2
`

t.test('skipped tests are found with where they are and why', async (t) => {
  const said = [
    { file: 'test/a.test.ts', output: OUTPUT },
    { file: 'test/b.test.ts', output: 'TAP version 14\n1..0 # SKIP nothing for this system\n' },
    { file: 'test/c.test.ts', output: '# Subtest: broken\n    not ok 1 - broken # time=1ms\n' },
  ]
  t.same(
    skippedTests(said).map(({ file, name, reason }) => `${file} | ${name} | ${reason}`),
    [
      'test/a.test.ts | needs the moon | no moon here',
      'test/a.test.ts | outer > an assertion | without a reason',
      'test/a.test.ts | outer > inner > deep | too deep',
      'test/b.test.ts | all of it | nothing for this system',
    ],
  )
  t.same(skippedTests([]), [])
})

t.test('where a tier is required, each skip is a failure with its reason', async (t) => {
  const skipped = [{ file: 'test/a.test.ts', name: 'needs the moon', reason: 'no moon here' }]
  const outcomes = [
    { tier: 'unit', state: 'passed', detail: '', skipped },
    { tier: 'netns', state: 'skipped', detail: 'needs root', skipped: [] },
    { tier: 'kernel', state: 'skipped', detail: 'needs qemu', skipped: [] },
  ] as const
  t.same(missingWhereRequired(outcomes, ['unit', 'netns']), [
    'tier unit is required here but test/a.test.ts skipped "needs the moon": no moon here',
    'tier netns is required here but was skipped: needs root',
  ])
  t.same(missingWhereRequired(outcomes, ['']), [])
})

t.test('files take turns, and none is left out by all of them', async (t) => {
  const all = chooseFiles(
    TIERS.map(({ name }) => name),
    { tiers: TIERS, from: '.' },
  )
  for (const { tier, files } of all) {
    const { turns = [] } = tier
    t.same(shareOf(tier, files), { files, left: [] }, `${tier.name}: all where no turn is named`)
    if (turns.length === 0) continue
    const shares = Array.from({ length: EVERY }, (_, number) => shareOf(tier, files, { number, changed: [] }))
    t.same([...new Set(shares.flatMap((one) => one.files))].sort(), files, `${tier.name}: all in ${EVERY} turns`)
    for (const [i, { files: taken, left }] of shares.entries()) {
      t.same([...taken, ...left].sort(), files, `${tier.name}, turn ${i}`)
      t.ok(left.length > 0, `${tier.name}, turn ${i} leaves some`)
      const later = { number: i + 10 * EVERY, changed: [] }
      t.same(shareOf(tier, files, later).left, left, 'turns come round')
    }
    const words = turns.flatMap(({ shares }) => shares.flatMap(({ source }) => wordsOf(source)))
    for (const word of words)
      t.equal(files.filter((file) => file.endsWith(`/${word}.test.ts`)).length, 1, `${tier.name}: ${word}`)
    t.equal(new Set(words).size, words.length, `${tier.name}: each has one turn`)
  }
})

/** The number of turns in which every share runs at least once. */
const EVERY = 12

/** Returns the words of a pattern: `(a|b)\.test` gives a and b. */
function wordsOf(pattern: string): readonly string[] {
  return /\((.*)\)/.exec(pattern)?.[1]?.split('|') ?? []
}

t.test('half of the shares, and two at least, run where what they show has changed, or may have', async (t) => {
  const turns: readonly Turns[] = [{ shares: [/a/, /b/], changed: /^gateway\// }, { shares: [/c/, /d/] }]
  const files = ['a', 'b', 'c', 'd', 'e']
  for (const [changed, number, left] of [
    [[], 0, ['b', 'd']],
    [[], 1, ['a', 'c']],
    [['docs/x.md', 'gateway/main.ts'], 0, ['d']],
    [['docs/gateway/x.md'], 2, ['b', 'd']],
    // A clone without history cannot tell which files changed.
    [undefined, 1, ['c']],
  ] as const) {
    const share = shareOf({ turns }, files, { number, changed })
    t.same(share, { files: files.filter((file) => !left.includes(file as never)), left: [...left] })
  }
  const four: readonly Turns[] = [{ shares: [/a/, /b/, /c/, /d/], changed: /^gateway\// }]
  for (const [number, taken] of [
    [0, ['a', 'b', 'e']],
    [1, ['b', 'c', 'e']],
    [7, ['a', 'd', 'e']],
  ] as const)
    t.same(shareOf({ turns: four }, files, { number, changed: ['gateway/main.ts'] }).files, taken, `turn ${number}`)
})

t.test('a turn is a whole number', async (t) => {
  t.same([parseTurn(undefined), parseTurn('0'), parseTurn('1764235946')], [undefined, 0, 1764235946])
  for (const text of ['', '-1', '1.5', 'x', '1e3', '9'.repeat(16)])
    t.throws(() => parseTurn(text), { message: /^SEALANE_TURN ".*": expected a whole number from 0$/ }, text)
})

t.test('the tiers are known by their names', async (t) => {
  t.same(
    TIERS.map(({ name }) => name),
    [
      'unit',
      'story',
      'conventions',
      'netns',
      'long',
      'lanes',
      'hostile',
      'etcd',
      'browser',
      'kube',
      'kernel',
      'emulated',
    ],
  )
})
