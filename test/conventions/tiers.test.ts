/** What a required tier skips is reported. */
import t from 'tap'
import { missingWhereRequired } from '../run-tiers.ts'
import { skippedTests } from '../support/skipped-tests.ts'
import { TIERS } from '../tiers.ts'
import { parseTurn, shareOf } from '../turns.ts'
import { chooseFiles } from '../choose-files.ts'

// In two parts, because the word itself may not be in a file.
const LATER = 'TO' + 'DO'
const RECORD = `TAP version 14
1..3
# Subtest: test/a.test.ts
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
ok 1 - test/a.test.ts # time=19ms
ok 2 - test/b.test.ts # SKIP nothing for this system
# Subtest: test/c.test.ts
    not ok 1 - broken # time=1ms
`

t.test('skipped tests are found with where they are and why', async (t) => {
  t.same(
    skippedTests(RECORD).map(({ file, name, reason }) => `${file} | ${name} | ${reason}`),
    [
      'test/a.test.ts | needs the moon | no moon here',
      'test/a.test.ts | outer > an assertion | without a reason',
      'test/a.test.ts | outer > inner > deep | too deep',
      'test/b.test.ts | all of it | nothing for this system',
    ],
  )
  t.same(skippedTests(''), [])
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

t.test('long files take turns, and none is left out by all of them', async (t) => {
  for (const { tier, files } of chooseFiles(
    TIERS.map(({ name }) => name),
    { tiers: TIERS, from: '.' },
  )) {
    const { turns = [] } = tier
    t.same(shareOf(tier, files), { files, left: [] }, `${tier.name}: all where no turn is named`)
    const shares = turns.map((_, turn) => shareOf(tier, files, turn))
    if (turns.length > 0) t.same([...new Set(shares.flatMap((one) => one.files))].sort(), files)
    for (const [i, { files: taken, left }] of shares.entries()) {
      t.same([...taken, ...left].sort(), files, `${tier.name}, turn ${i}`)
      t.ok(left.length > 0 && left.length < files.length / 2)
      t.same(shareOf(tier, files, i + 10 * turns.length).left, left, 'turns come round')
    }
    const words = turns.flatMap(({ source }) => /\((.*)\)/.exec(source)?.[1]?.split('|') ?? [])
    for (const word of words) t.equal(files.filter((file) => file.endsWith(`/${word}.test.ts`)).length, 1, word)
    t.equal(new Set(words).size, words.length, 'each has one turn')
  }
})

t.test('a turn is a whole number', async (t) => {
  t.same([parseTurn(undefined), parseTurn('0'), parseTurn('1764235946')], [undefined, 0, 1764235946])
  for (const text of ['', '-1', '1.5', 'x', '1e3', '9'.repeat(16)])
    t.throws(() => parseTurn(text), { message: /^SEALANE_TURN ".*": expected a whole number from 0$/ }, text)
})

t.test('the tiers are known by their names', async (t) => {
  t.same(
    TIERS.map(({ name }) => name),
    ['unit', 'story', 'conventions', 'netns', 'hostile', 'etcd', 'kube', 'kernel', 'emulated'],
  )
})
