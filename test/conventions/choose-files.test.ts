/** `npm test -- PATH…` runs the files that the paths select, and reports a path that selects none. */
import { join } from 'node:path'
import t from 'tap'
import { ROOT, chooseFiles } from '../choose-files.ts'
import { runTiers } from '../run-tiers.ts'
import { messageOf } from '../support/failure.ts'
import { TIERS, type Tier } from '../tiers.ts'

function chosen(words: readonly string[], from = ROOT): Readonly<Record<string, readonly string[]>> {
  return Object.fromEntries(chooseFiles(words, { tiers: TIERS, from }).map(({ tier, files }) => [tier.name, files]))
}

t.test('names of tiers mean the tiers, in their order', async (t) => {
  const found = chosen(['conventions', 'unit'])
  t.same(Object.keys(found), ['unit', 'conventions'])
  t.ok(found['conventions']?.includes('test/conventions/choose-files.test.ts'))
})

t.test('where there are paths, they alone are run, each in its tier', async (t) => {
  const rows: readonly (readonly [words: readonly string[], from: string, want: object])[] = [
    [
      ['unit', 'story', 'test/conventions/names.test.ts', 'test/kube/program.test.ts'],
      '',
      { conventions: ['test/conventions/names.test.ts'], kube: ['test/kube/program.test.ts'] },
    ],
    [
      ['names.test.ts', './imports.test.ts', '../story/../conventions/names.test.ts'],
      'test/conventions',
      { conventions: ['test/conventions/imports.test.ts', 'test/conventions/names.test.ts'] },
    ],
    [[join(ROOT, 'test/conventions/names.test.ts')], 'bin', { conventions: ['test/conventions/names.test.ts'] }],
    [['unit', 'test/conventions'], '', { conventions: chosen(['conventions'])['conventions'] }],
  ]
  for (const [words, from, want] of rows) t.same(chosen(words, join(ROOT, from)), want, words.join(' '))
  t.same(
    Object.keys(chosen(['test'])),
    TIERS.map(({ name }) => name),
  )
})

t.test('a path that means nothing is an error, and nothing runs', async (t) => {
  const words = ['unit', 'test/nowhere.test.ts', 'test/run-tiers.ts', 'test/support', 'test/story']
  const lines = [
    'test/nowhere.test.ts: there is no such file, folder or tier',
    'test/run-tiers.ts: is not a test file (*.test.ts) of a tier, see test/tiers.ts',
    'test/support: has no test file (*.test.ts) of a tier in it, see test/tiers.ts',
  ]
  t.equal(await messageOf(() => chosen(words)), lines.join('\n'))
  const ended = await runNothing(words)
  t.equal(ended.code, 2)
  t.ok(ended.text.startsWith(`${lines.join('\n')}\nusage: run-tiers unit|`), ended.text)
  t.same(await runNothing([]), {
    code: 2,
    text: `no tier and no file is named\n${ended.text.split('\n').slice(3).join('\n')}`,
  })
})

t.test('a file whose tier cannot run here has failed', async (t) => {
  const ended = await runNothing(['test/netns/leave-node.test.ts'])
  t.equal(ended.code, 1)
  t.ok(
    ended.text.endsWith('test/netns/leave-node.test.ts did not run: tier netns needs the moon\n0 passed, 1 failed\n'),
  )
  t.equal((await runNothing(['netns'])).code, 0, 'a tier that nobody requires is skipped')
})

/** Runs tiers of which none can run. */
async function runNothing(words: readonly string[]): Promise<{ readonly code: number; readonly text: string }> {
  const tiers = TIERS.map((tier): Tier => ({ ...tier, skip: () => Promise.resolve('needs the moon') }))
  let text = ''
  const say = (more: string): void => void (text += more)
  const code = await runTiers({ tiers, words, from: ROOT, required: [], flakyFile: undefined, say })
  return { code, text }
}
