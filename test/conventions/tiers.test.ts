/** What a required tier skips is reported. */
import t from 'tap'
import { missingWhereRequired } from '../run-tiers.ts'
import { skippedTests } from '../support/skipped-tests.ts'
import { TIERS } from '../tiers.ts'

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

t.test('the tiers are known by their names', async (t) => {
  t.same(
    TIERS.map(({ name }) => name),
    ['unit', 'story', 'conventions', 'netns', 'hostile', 'etcd', 'kube', 'kernel', 'emulated'],
  )
})
