/** The results of test files, however they end. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative } from 'node:path'
import t, { type Test } from 'tap'
import { ROOT } from '../choose-files.ts'
import { idleShare, idleSince, parseProcessorTimes } from '../idle-processors.ts'
import { type FileSaid, type FilesInit, countsOf, runFiles } from '../run-files.ts'
import { skippedTests } from '../run-tier.ts'
import { eventually } from '../support/eventually.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const SAY = (lines: string): string => `console.log(${JSON.stringify(lines)})\n`

/** Returns the output of tap for tests with one assertion each. */
function tap(...tests: readonly ('ok' | 'not ok' | 'skipped')[]): string {
  const lines = tests.map((state, i) =>
    state === 'skipped'
      ? `ok ${i + 1} - test ${i} # SKIP no sun`
      : `# Subtest: test ${i}\n    ${state} 1 - an assertion\n    1..1\n${state} ${i + 1} - test ${i} # time=1ms`,
  )
  return `TAP version 14\n${lines.join('\n')}\n1..${tests.length}\n# { total: ${tests.length} }`
}
const GOOD = SAY(tap('ok', 'ok'))

interface Row {
  readonly source: string
  /** The counts of passed and failed tests, and the fault. */
  readonly becomes: readonly [number, number, string | undefined]
}

const ROWS: Readonly<Record<string, Row>> = {
  good: { source: GOOD, becomes: [2, 0, undefined] },
  bad: {
    source: `${SAY(tap('ok', 'not ok', 'not ok'))}process.exitCode = 1`,
    becomes: [1, 2, 'it ended with code 1'],
  },
  'bad, and says that all is well': { source: SAY(tap('not ok')), becomes: [0, 1, undefined] },
  'good, and then it breaks': { source: `${GOOD}process.exit(3)`, becomes: [2, 1, 'it ended with code 3'] },
  'broken off': {
    source: `${SAY('# Subtest: a\n    ok 1 - b')}process.exit(0)`,
    becomes: [0, 1, 'it ended without saying how many tests it ran'],
  },
  'with a test that never ends, and nothing that keeps the process': {
    source: SAY('not ok 1 - test unfinished\n1..1'),
    becomes: [0, 1, 'it ended without saying how many tests it ran'],
  },
  silent: { source: '', becomes: [0, 1, 'it ended without saying how many tests it ran'] },
  killed: { source: `process.kill(process.pid, 'SIGKILL')`, becomes: [0, 1, 'it ended with SIGKILL'] },
  'not a program': { source: 'this is none', becomes: [0, 1, 'it ended with code 1'] },
  'never at an end': { source: `${GOOD}setInterval(() => {}, 1000)`, becomes: [2, 1, 'it ended with SIGTERM'] },
  'deaf to signals': {
    source: `${GOOD}process.on('SIGTERM', () => {})\nsetInterval(() => {}, 1000)`,
    becomes: [2, 1, 'it ended with SIGKILL'],
  },
  skipped: { source: SAY('TAP version 14\n1..0 # no moon\n# { total: 0, pass: 0 }'), becomes: [0, 0, undefined] },
  'nothing in it': { source: SAY('TAP version 14\n1..0\n# { total: 0, pass: 0 }'), becomes: [0, 0, undefined] },
  'skipped in part': { source: SAY(tap('ok', 'skipped')), becomes: [1, 0, undefined] },
  'assertions outside of tests': {
    source: SAY('TAP version 14\nok 1 - a\nok 2 - b\n1..2\n# { total: 2, pass: 2 }'),
    becomes: [1, 0, undefined],
  },
}

async function runRows(t: Test): Promise<readonly FileSaid[]> {
  const folder = temporaryFolder(t)
  const files = Object.entries(ROWS).map(([name, { source }]) => {
    const path = join(folder, `${name}.mjs`)
    writeFileSync(path, source)
    return path
  })
  return runFiles(files, { jobs: 4, seconds: 3, graceMs: 3000, onEnd: () => undefined })
}

t.test('each end of a file is told for what it is', async (t) => {
  const said = await runRows(t)
  for (const [i, [name, { becomes }]] of Object.entries(ROWS).entries()) {
    const one = said[i]
    if (one === undefined) throw new Error(`nothing is known of ${name}`)
    const { passed, failed } = countsOf([one])
    t.same([passed, failed, one.fault], becomes, name)
  }
  t.same(countsOf(said), { passed: 11, failed: 11, skipped: 3 })
  t.same(
    skippedTests(said).map(({ name, reason }) => `${name}: ${reason}`),
    ['all of it: no moon', 'all of it: without a reason', 'test 1: no sun'],
  )
})

/** The files of one process, each with its source and the expected counts. The fault says how the file ended. */
const BATCHES: readonly (readonly (readonly [source: string, counts: string, fault: RegExp | undefined])[])[] = [
  [
    [`t.test('a', async (t) => t.ok(true)); t.test('b', async (t) => t.ok(true))`, '2 passed', undefined],
    [`t.test('a', { skip: 'no moon' }, async () => undefined)`, '1 skipped', undefined],
    [
      `t.test('a', async (t) => t.test('b', async (t) => t.ok(false)))`,
      '1 failed',
      /^it failed beside others in one process$/,
    ],
    [`throw new Error('it cannot be read')`, '1 failed', /^it failed beside others/],
    [`t.setTimeout(200); t.test('a', () => new Promise(() => setInterval(() => {}, 1e6)))`, '1 failed', /^it failed/],
    // An error that nothing catches ends the test that runs, and no other one.
    [
      `t.test('a', () => new Promise(() => setTimeout(() => { throw new Error('late') }, 1))); t.test('b', async (t) => t.ok(true))`,
      '1 passed, 1 failed',
      /^it failed/,
    ],
    [
      `t.test('a', async (t) => t.test('b', () => new Promise(() => void Promise.reject(new Error('lost')))))`,
      '1 failed',
      /^it failed/,
    ],
    [
      `t.ok(true); setTimeout(() => { throw new Error('between tests') }, 1); t.test('a', () => new Promise((end) => setTimeout(end, 50)))`,
      '1 failed',
      /^it failed/,
    ],
    // A top-level call such as t.teardown() belongs to its own file, even while the process loads the next one.
    [`t.teardown(() => console.error('over')); t.test('a', async (t) => t.ok(true))`, '1 passed', undefined],
    // An open server does not delay the other files.
    [`setInterval(() => {}, 1e6); t.ok(true)`, '1 passed', undefined],
  ],
  [
    [`t.test('a', async (t) => t.ok(true))`, '1 passed', undefined],
    [`t.test('a', async () => process.exit(3))`, '1 failed', /^it failed beside others/],
    [`t.test('a', async (t) => t.ok(true))`, '1 failed', /^all processes ended before it$/],
  ],
  [
    [`t.test('a', async (t) => t.ok(true))`, '1 passed', undefined],
    [
      `process.on('exit', () => (process.exitCode = 3)); t.test('a', async (t) => t.ok(true))`,
      '1 passed, 1 failed',
      /^its process failed: it ended with code 3$/,
    ],
  ],
]

t.test('many files in one process', async (t) => {
  for (const rows of BATCHES) {
    const folder = temporaryFolder(t)
    const files = rows.map(([source], i) => {
      const path = join(folder, `${i}.test.ts`)
      writeFileSync(path, `import t from ${JSON.stringify(import.meta.resolve('../batch-tap.ts'))}\n${source}\n`)
      return relative(ROOT, path)
    })
    const said = await runFiles(files, { jobs: 1, batches: 1, seconds: 20, graceMs: 3000, onEnd: () => undefined })
    t.same(
      said.map((one) => countsInWords(one)),
      rows.map(([, counts]) => counts),
    )
    for (const [i, { fault }] of said.entries()) {
      const want = rows[i]?.[2]
      if (want === undefined) t.equal(fault, undefined)
      else t.match(fault, want)
    }
  }
})

t.test('a process takes the next file when it has ended one, also those of one that broke', async (t) => {
  const folder = temporaryFolder(t)
  const ended = join(folder, 'ended')
  const others = ['a', 'b', 'c', 'd']
  const waits = `t.test('waits', async (t) => {
  while (!existsSync(${JSON.stringify(ended)}) || readFileSync(${JSON.stringify(ended)}, 'utf8') !== '${others.join('')}')
    await new Promise((resolve) => setTimeout(resolve, 10))
  t.ok(true)
})`
  const sources = [
    waits,
    ...others.map((name) => `t.ok(true)\nappendFileSync(${JSON.stringify(ended)}, '${name}')`),
    `process.exit(3)`,
  ]
  const files = sources.map((source, i) => {
    const path = join(folder, `${i}.test.ts`)
    const imports = `import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import t from ${JSON.stringify(import.meta.resolve('../batch-tap.ts'))}`
    writeFileSync(path, `${imports}\n${source}\n`)
    return relative(ROOT, path)
  })
  const said = await runFiles(files, { jobs: 2, batches: 2, seconds: 30, onEnd: () => undefined })
  t.same(
    said.map((one) => countsInWords(one)),
    ['1 passed', ...others.map(() => '1 passed'), '1 failed'],
  )
})

function countsInWords(said: FileSaid): string {
  const counts = Object.entries(countsOf([said])).filter(([, count]) => count > 0)
  return counts.map(([state, count]) => `${count} ${state}`).join(', ')
}

/** Returns how many files run at once, with files that wait for each other. */
async function atOnce(t: Test, files: number, init: Pick<FilesInit, 'jobs' | 'most' | 'idle'>): Promise<number> {
  const folder = temporaryFolder(t)
  const [began, enough] = [join(folder, 'began'), join(folder, 'enough')]
  const source = `import { appendFileSync, existsSync } from 'node:fs'
appendFileSync(${JSON.stringify(began)}, 'x')
setInterval(() => existsSync(${JSON.stringify(enough)}) && process.exit(), 10)`
  const paths = Array.from({ length: files }, (_, i) => {
    const path = join(folder, `${i}.mjs`)
    writeFileSync(path, source)
    return path
  })
  const count = (): number => (existsSync(began) ? readFileSync(began, 'utf8').length : 0)
  let [most, looks] = [0, 0]
  // The number is final after thirty checks in which no further file has started.
  const idle = (): number => {
    if (existsSync(enough)) return 0
    looks = count() > most ? 0 : looks + 1
    most = Math.max(most, count())
    if (looks > 30 && most >= init.jobs) writeFileSync(enough, '')
    return init.idle?.() ?? 0
  }
  await runFiles(paths, { ...init, idle, lookMs: 50, seconds: 60, onEnd: () => undefined })
  t.equal(count(), files, 'all ran')
  return most
}

t.test('more files run at once while processors are idle, up to a limit', async (t) => {
  t.equal(await atOnce(t, 9, { jobs: 2, most: 5, idle: () => 1 }), 5)
  t.equal(await atOnce(t, 9, { jobs: 2, most: 5, idle: () => 0.2 }), 2)
  t.equal(await atOnce(t, 9, { jobs: 2, idle: () => 1 }), 2)
  t.equal(await atOnce(t, 3, { jobs: 2, most: 5, idle: () => 1 }), 3)
})

t.test('who joins while processors are idle is the last, which needs least', async (t) => {
  const folder = temporaryFolder(t)
  const began = join(folder, 'began')
  const paths = Array.from({ length: 4 }, (_, i) => {
    const path = join(folder, `${i}.mjs`)
    // The first file runs until another one has begun.
    const source = `import { appendFileSync, readFileSync } from 'node:fs'
appendFileSync(${JSON.stringify(began)}, '${i}')
setInterval(() => readFileSync(${JSON.stringify(began)}, 'utf8').length > 1 && process.exit(), 10)`
    writeFileSync(path, source)
    return path
  })
  const idle = (): number => (existsSync(began) ? 1 : 0)
  await runFiles(paths, { jobs: 1, most: 2, idle, lookMs: 50, seconds: 60, onEnd: () => undefined })
  t.match(readFileSync(began, 'utf8'), /^03/)
})

t.test('what is idle', async (t) => {
  t.equal(idleShare({ idle: 100, busy: 100 }, { idle: 130, busy: 110 }), 0.75)
  t.equal(idleShare({ idle: 100, busy: 100 }, { idle: 100, busy: 110 }), 0)
  t.equal(idleShare({ idle: 100, busy: 100 }, { idle: 100, busy: 100 }), 0)
  const stat = 'cpu  100 20 30 400 50 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n'
  t.strictSame(parseProcessorTimes(stat), { idle: 470, busy: 151 })
  t.strictSame(parseProcessorTimes(''), { idle: 0, busy: 0 })
  const share = idleSince()()
  t.ok(share >= 0 && share <= 1)
})

for (const [kind, more] of Object.entries({ obedient: '', deaf: `process.on('SIGTERM', () => {})\n` })) {
  t.test(`Ctrl-C ends the file under way, be it ${kind}, and no other is begun`, (t) => stopped(t, more))
}

async function stopped(t: Test, more: string): Promise<void> {
  const folder = temporaryFolder(t)
  const began = (name: string): string => join(folder, `${name}.began`)
  const files = ['first', 'second'].map((name) => {
    const path = join(folder, `${name}.mjs`)
    writeFileSync(
      path,
      `import { writeFileSync } from 'node:fs'\n${more}setInterval(() => {}, 1000)\nwriteFileSync(${JSON.stringify(began(name))}, '')`,
    )
    return path
  })
  const module = JSON.stringify(join(import.meta.dirname, '../run-files.ts'))
  const script = `import { runFiles } from ${module}
await runFiles(${JSON.stringify(files)}, { jobs: 1, seconds: 60, graceMs: 1000, onEnd: () => undefined }).catch((error) => console.log(error.message))`
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { stdio: ['ignore', 'pipe', 'inherit'] })
  let said = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text))
  const closed = once(child, 'close')
  await eventually(() => existsSync(began('first')), { deadlineMs: 30_000 })
  child.kill('SIGINT')
  await closed
  t.equal(said, 'the tests were stopped by SIGINT\n')
  t.notOk(existsSync(began('second')))
}
