/** A failed file runs once more, alone, and the report still shows the first failure. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import t, { type Test } from 'tap'
import { ROOT } from '../choose-files.ts'
import { runTiers } from '../run-tiers.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import type { Tier } from '../tiers.ts'

/** The result of each run of a file. The last result applies to all later runs. */
type Ends = readonly ('good' | 'bad' | 'skip' | 'crash' | 'fewer')[]

const PROGRAM = `import { appendFileSync, readFileSync } from 'node:fs'
const [ends, log, name] = SETTINGS
appendFileSync(log, 'begin ' + name + '\\n')
const before = readFileSync(log, 'utf8').split('\\n').filter((line) => line === 'begin ' + name).length - 1
const end = ends[Math.min(before, ends.length - 1)]
process.on('exit', () => appendFileSync(log, 'end ' + name + '\\n'))
const test = (ok, n, more = '') => '# Subtest: t' + n + '\\n' + more + '    1..1\\n' + ok + ' ' + n + ' - t' + n + '\\n'
const TAP = {
  good: test('ok', 1) + test('ok', 2) + '1..2\\n# { total: 2, pass: 2 }',
  bad: test('not ok', 1, '    not ok 1 - the reason of run ' + before + '\\n# a line of run ' + before + '\\n') +
    test('ok', 2) + '1..2\\n# { total: 2, pass: 1, fail: 1 }',
  skip: 'ok 1 - a # SKIP no moon\\n' + test('ok', 2) + '1..2\\n# { total: 2, pass: 1, skip: 1 }',
  fewer: test('ok', 1) + '1..1\\n# { total: 1, pass: 1 }',
}
console.log(TAP[end] ?? 'ok 1 - a')
if (end === 'crash') process.kill(process.pid, 'SIGKILL')
if (end === 'bad') process.exitCode = 1
`

interface Ran {
  readonly code: number
  readonly text: string
  /** The lines 'begin NAME' and 'end NAME' in the order of their arrival. */
  readonly order: readonly string[]
  readonly flakyFile: string
}

/** Runs one tier of such files. */
async function run(
  t: Test,
  files: Readonly<Record<string, Ends>>,
  change: Partial<Tier> = {},
  known: { readonly flaky?: readonly string[]; readonly cases?: Readonly<Record<string, number>> } = {},
): Promise<Ran> {
  const { folder, log } = world(t)
  for (const [name, ends] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.test.ts`), PROGRAM.replace('SETTINGS', JSON.stringify([ends, log, name])))
  }
  const tier: Tier = {
    name: 'fake',
    folders: [relative(ROOT, folder)],
    skip: () => Promise.resolve(undefined),
    jobs: 2,
    seconds: 30,
    rerun: true,
    ...change,
  }
  const flakyFile = join(folder, 'flaky.txt')
  const required = change.name === 'required' ? ['required'] : []
  const pathOf = (name: string): string => join(relative(ROOT, folder), `${name}.test.ts`)
  const knownFlaky = (known.flaky ?? []).map(pathOf)
  const cases = new Map(Object.entries(known.cases ?? {}).map(([name, count]) => [pathOf(name), count]))
  let text = ''
  const say = (more: string): void => void (text += more)
  const init = { tiers: [tier], words: [tier.name], from: ROOT, required, flakyFile, knownFlaky, cases, say }
  const code = await runTiers(init)
  const order = readFileSync(log, 'utf8').trim().split('\n')
  const flaky = existsSync(flakyFile) ? readFileSync(flakyFile, 'utf8') : ''
  return { code, text: text.replaceAll(relative(ROOT, folder), 'here'), order, flakyFile: flaky }
}

function world(t: Test): { folder: string; log: string } {
  const folder = join(temporaryFolder(t), 'fake')
  mkdirSync(folder)
  writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
  const log = join(folder, 'log.txt')
  writeFileSync(log, '')
  return { folder, log }
}

/** Returns the report from the table on. */
function ending(text: string): string {
  return text.slice(text.indexOf('tier  ')).replace(/ +\d+\.\d s/, ' N s')
}

t.test('what passes when it is run alone is flaky, and the tier passes', async (t) => {
  const { code, text, order, flakyFile } = await run(t, { a: ['bad', 'good'], b: ['good'], c: ['good'] })
  t.equal(code, 0)
  t.same(order.slice(-2), ['begin a', 'end a'], 'after all others')
  t.equal(order.filter((line) => line === 'begin a').length, 2)
  t.equal(order.length, 8, 'the others run once')
  t.match(text, '# a line of run 0', 'the whole log of the first time')
  t.match(text, 'run once more, alone: here/a.test.ts\n')
  t.equal(
    ending(text),
    `tier         result    time     detail
fake         passed N s  3 files, 6 tests, 1 flaky (failed, then passed alone)
FLAKY here/a.test.ts
        not ok 1 - the reason of run 0
    # a line of run 0
        1..1
    not ok 1 - t1
    # Subtest: t2
        1..1
    it ended with code 1
6 passed, 0 failed, 1 FLAKY (failed, then passed alone)
`,
  )
  t.match(flakyFile, /^FLAKY \S+\/a\.test\.ts\n$/)
})

t.test('what fails again has failed, and both logs are shown', async (t) => {
  const { code, text, flakyFile } = await run(t, { a: ['bad'], b: ['good'] })
  t.equal(code, 1)
  t.match(text, '# a line of run 0')
  t.match(text, '# a line of run 1')
  t.match(ending(text), /fake +failed .* 2 files, 3 tests\n3 passed, 1 failed\n$/)
  t.equal(flakyFile, '')
})

t.test('a file that breaks off is run once more as well', async (t) => {
  const { code, text } = await run(t, { a: ['crash', 'good'] })
  t.equal(code, 0)
  t.match(ending(text), 'FLAKY here/a.test.ts\n    it ended with SIGKILL\n2 passed')
})

t.test('a skip where the tier is required counts as a failure', async (t) => {
  const now = await run(t, { a: ['skip', 'good'] }, { name: 'required' })
  t.equal(now.code, 0)
  t.match(now.text, 'FLAKY here/a.test.ts\n')
  const still = await run(t, { a: ['skip'] }, { name: 'required' })
  t.equal(still.code, 1)
  t.match(still.text, 'tier required is required here but here/a.test.ts skipped "a": no moon\n')
  t.notMatch(still.text, 'FLAKY')
  const elsewhere = await run(t, { a: ['skip'] })
  t.equal(elsewhere.code, 0)
  t.equal(elsewhere.order.length, 2, 'elsewhere nothing is run again')
})

t.test('a test that failed and is skipped when it is run again has failed', async (t) => {
  const { code, text } = await run(t, { a: ['bad', 'skip'] })
  t.equal(code, 1)
  t.match(ending(text), /1 passed, 1 failed\n$/)
})

t.test('what was flaky before gets no second chance', async (t) => {
  const { code, text, order } = await run(t, { a: ['bad', 'good'], b: ['bad', 'good'] }, {}, { flaky: ['a'] })
  t.equal(code, 1)
  t.match(text, 'here/a.test.ts has been flaky before (test/flaky.txt): it gets no second chance\n')
  t.match(ending(text), 'FLAKY here/b.test.ts\n')
  t.equal(order.filter((line) => line.startsWith('begin')).length, 3)
})

t.test('a file that has lost tests is red', async (t) => {
  const cases = { a: 2, b: 2, c: 1 }
  const { code, text } = await run(t, { a: ['fewer'], b: ['skip'], c: ['good'], d: ['good'] }, {}, { cases })
  t.equal(code, 1)
  t.match(text, 'here/a.test.ts has lost tests: 2 are in test/cases.txt, 1 ran\n')
  t.match(ending(text), /4 files, 6 tests, 1 skipped .*, 1 files lost tests\n6 passed, 1 failed\n$/)
})

t.test('what fails beside others in one process is run by itself, and stays red', async (t) => {
  const passes = await batch(t, `t.equal(globalThis.leftover, undefined)\nglobalThis.leftover = 1`)
  t.equal(passes.code, 1)
  t.match(passes.text, /run again, each in a process of its own: here\/b\.test\.ts, here\/c\.test\.ts\n/)
  t.match(ending(passes.text), /3 files, 1 tests\n1 passed, 2 failed\n$/)
  const fails = await batch(t, `t.equal(1, 2)`)
  t.match(fails.text, /run again, .*: here\/a.*, here\/b.*, here\/c/)
  t.match(ending(fails.text), /3 files, 0 tests \(nothing ran\)\n0 passed, 3 failed\n$/)
})

/** Runs three files with the same test in one process. */
async function batch(t: Test, source: string): Promise<Pick<Ran, 'code' | 'text'>> {
  const { folder } = world(t)
  const tap = JSON.stringify(import.meta.resolve('../batch-tap.ts'))
  for (const name of ['a', 'b', 'c']) {
    writeFileSync(
      join(folder, `${name}.test.ts`),
      `import t from ${tap}\nt.test('one', async (t) => {\n${source}\n})\n`,
    )
  }
  const folders = [relative(ROOT, folder)]
  const tier: Tier = {
    name: 'fake',
    folders,
    skip: () => Promise.resolve(undefined),
    jobs: 1,
    batches: 1,
    seconds: 30,
  }
  let text = ''
  const say = (more: string): void => void (text += more)
  const init = { tiers: [tier], words: [tier.name], from: ROOT, required: [], flakyFile: undefined, say }
  const code = await runTiers(init)
  return { code, text: text.replaceAll(relative(ROOT, folder), 'here') }
}

t.test('where many fail, none is run again', async (t) => {
  const files = Object.fromEntries(['a', 'b', 'c', 'd', 'e'].map((name) => [name, ['bad', 'good']] as const))
  const { code, text, order } = await run(t, files)
  t.equal(code, 1)
  t.equal(order.length, 10)
  t.match(text, '5 files of tier fake failed: more than 4 are not run again\n')
  t.match(ending(text), /5 passed, 5 failed\n$/)
})

t.test('a tier that takes no real time runs nothing again', async (t) => {
  const { code, order } = await run(t, { a: ['bad', 'good'] }, { rerun: false })
  t.equal(code, 1)
  t.equal(order.length, 2)
})

t.test('files that are to be alone are, after the others', async (t) => {
  const { order } = await run(t, { a: ['good'], b: ['good'], c: ['good'], d: ['good'] }, { alone: /[ab]\.test/ })
  t.same(order.slice(-4), ['begin a', 'end a', 'begin b', 'end b'])
})

t.test('long files begin first', async (t) => {
  const { order } = await run(t, { a: ['good'], b: ['good'], c: ['good'] }, { jobs: 1, long: [/c\.test/, /b\.test/] })
  t.same(
    order.filter((line) => line.startsWith('begin')),
    ['begin c', 'begin b', 'begin a'],
  )
})

t.test('what cannot be prepared fails the tier', async (t) => {
  const prepare = (): Promise<void> => Promise.reject(new Error('no compiler'))
  const { code, text, order } = await run(t, { a: ['good'] }, { prepare })
  t.equal(code, 1)
  t.match(text, /^no compiler\n/)
  t.match(ending(text), /1 files, 0 tests \(nothing ran\)\n0 passed, 1 failed\n$/)
  t.same(order, [''])
})
