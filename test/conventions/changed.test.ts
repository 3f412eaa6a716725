/** The tests that a change reaches, and the files that have lost tests. */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { CASES_FILE, parseCases, updateCases } from '../cases.ts'
import { changedSince, distances, nearest } from '../changed.ts'
import { ROOT, chooseFiles } from '../choose-files.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { TIERS } from '../tiers.ts'

const FILES = [
  { path: 'model/a.ts', text: '' },
  { path: 'model/b.ts', text: `import { a } from './a.ts'` },
  { path: 'model/other.ts', text: '' },
  { path: 'cli/main.ts', text: `import type { B } from '../model/b.ts'` },
  { path: 'test/a.test.ts', text: `import '../model/a.ts'` },
  { path: 'test/b.test.ts', text: `const { b } = await import('../model/b.ts')` },
  { path: 'test/program.test.ts', text: `spawn(join(ROOT, 'cli/main.ts'))` },
  { path: 'test/golden.test.ts', text: `golden('../test/golden/x.txt')` },
  { path: 'test/other.test.ts', text: `import '../model/other.ts' // model/a.ts` },
]
const TESTS = FILES.map(({ path }) => path).filter((path) => path.startsWith('test/'))

t.test('a change reaches those that import it or say its path, nearest first', async (t) => {
  for (const [changed, reached] of [
    [['model/a.ts'], ['test/a.test.ts', 'test/b.test.ts', 'test/program.test.ts']],
    [['cli/main.ts'], ['test/program.test.ts']],
    [['test/b.test.ts'], ['test/b.test.ts']],
    [['test/golden/x.txt'], ['test/golden.test.ts']],
    [['model/gone.ts'], []],
    [[], []],
  ] as const) {
    t.same(nearest(TESTS, distances(changed, FILES)), reached, changed.join())
  }
})

t.test('what has changed in a checkout', async (t) => {
  const root = temporaryFolder(t)
  const git = (...args: string[]): string => execFileSync('git', ['-C', root, ...args], { encoding: 'utf8' })
  git('init', '--quiet')
  const write = (path: string, text: string): void => writeFileSync(join(root, path), text)
  mkdirSync(join(root, 'new folder'))
  for (const path of ['a', 'b', 'c']) write(path, '1')
  git('add', '.')
  const commit = ['-c', 'user.name=t', '-c', 'user.email=t@example.org', 'commit', '--quiet', '--no-gpg-sign', '-m']
  git(...commit, 'first')
  t.same(changedSince('HEAD', root), [])
  write('a', '2')
  write('new folder/ü', '1')
  t.same(changedSince('HEAD', root), ['a', 'new folder/ü'])
  git('rm', '--quiet', 'b')
  git(...commit, 'second')
  t.same(changedSince('HEAD~1', root), ['a', 'b', 'new folder/ü'])
  for (const revision of ['nowhere', '--all', '']) {
    t.throws(() => changedSince(revision, root), {
      message: `changes since ${JSON.stringify(revision)}: expected a commit of this checkout`,
    })
  }
})

t.test('the list of cases has every test file of this project, and no other', async (t) => {
  const tiers = TIERS.map(({ name }) => name)
  const files = chooseFiles(tiers, { tiers: TIERS, from: '.' }).flatMap((one) => one.files)
  const listed = [...parseCases(readFileSync(CASES_FILE, 'utf8')).keys()]
  t.same(
    files.filter((file) => !listed.includes(file)),
    [],
    'these are not listed: SEALANE_UPDATE_CASES=1 npm test -- FILE',
  )
  t.same(
    listed.filter((file) => !existsSync(join(ROOT, file))),
    [],
    'these are listed and gone',
  )
})

t.test('the list is kept', async (t) => {
  const path = join(temporaryFolder(t), 'cases.txt')
  const one = (file: string, tests: number) => {
    const output = Array.from({ length: tests }, (_, i) => `# Subtest: t${i}\nok ${i} - t${i}\n`).join('')
    return { file, output, errors: '', fault: undefined, ms: 0 }
  }
  updateCases([one('test/b.test.ts', 3), one('test/a.test.ts', 1)], () => true, path)
  updateCases([one('test/b.test.ts', 2)], (file) => file !== 'test/a.test.ts', path)
  t.same([...parseCases(readFileSync(path, 'utf8'))], [['test/b.test.ts', 2]])
  t.throws(() => parseCases('test/a.test.ts many'), { message: /^test\/cases\.txt: ".*": expected a test file and a/ })
})
