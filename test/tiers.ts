/** The tiers of tests: what each needs and how it is run. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildAll } from './kube/support/build-all.ts'
import { kubeProgramsMissing } from './kube/support/kube-programs.ts'
import { run } from './run-tiers.ts'
import { PRODUCT } from './support/source-tree.ts'
import { type SkippedTest, skippedTests } from './support/skipped-tests.ts'

export interface TierRun {
  readonly code: number
  readonly output: string
  /** Tests that chose not to run. */
  readonly skipped: readonly SkippedTest[]
}

export interface Tier {
  readonly name: string
  readonly folders: readonly string[]
  /** Why it cannot run here; undefined when it can. */
  skip(): Promise<string | undefined>
  run(files: readonly string[]): Promise<TierRun>
}

const TAP = join(import.meta.dirname, '..', 'node_modules/.bin/tap')

function tap(jobs: number, seconds: number): Tier['run'] {
  return async (files) => {
    const folder = mkdtempSync(join(tmpdir(), 'sealane-tier-'))
    try {
      const record = join(folder, 'record.tap')
      const options = ['--reporter=terse', `--output-file=${record}`, `--jobs=${jobs}`, `--timeout=${seconds}`]
      const done = await run(TAP, ['run', ...options, ...files])
      // The reporter says little, or with CI=true nothing: what counts is the record.
      const output = existsSync(record) ? readFileSync(record, 'utf8') : ''
      if (done.code !== 0) process.stdout.write(failures(output))
      return { code: done.code, output, skipped: skippedTests(output) }
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  }
}

const MOST_LINES = 400

/** What failed, each with the lines behind it that say why. */
function failures(record: string): string {
  const lines = record.split('\n')
  const shown = new Set<number>()
  for (const [i, line] of lines.entries()) {
    if (!/^ *not ok\b/.test(line)) continue
    for (let n = i; n < i + 30 && (n === i || !/^ *(not )?ok\b/.test(lines[n] ?? '')); n += 1) shown.add(n)
  }
  const text = [...shown].slice(0, MOST_LINES).map((n) => lines[n])
  return text.length === 0 ? '' : `${text.join('\n')}\n`
}

/** The time of a test is for what it tests: what it needs built is built before. */
function afterBuilding(tests: Tier['run']): Tier['run'] {
  return async (files) => {
    const started = performance.now()
    try {
      await buildAll()
    } catch (error) {
      console.log(error instanceof Error ? error.message : error)
      return { code: 1, output: '', skipped: [] }
    }
    console.log(`programs of the tests are there after ${((performance.now() - started) / 1000).toFixed(1)} s`)
    return await tests(files)
  }
}

const always = (): Promise<undefined> => Promise.resolve(undefined)

/** Network namespaces can be made: tried, not guessed. */
function netnsProblem(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return Promise.resolve('needs root to make network namespaces')
  const tried = spawnSync('unshare', ['--net', 'true'])
  return Promise.resolve(tried.status === 0 ? undefined : 'this machine does not allow network namespaces')
}

function kernelProblem(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return Promise.resolve('needs root to share the root folder with the guest')
  const found = ['/usr/bin/qemu-system-x86_64'].some((path) => existsSync(path))
  return Promise.resolve(found ? undefined : 'needs the package qemu-system-x86')
}

function kubeProblem(): Promise<string | undefined> {
  if (process.getuid?.() !== 0) return Promise.resolve('needs root to make network namespaces for nodes')
  return Promise.resolve(kubeProgramsMissing())
}

export const TIERS: readonly Tier[] = [
  {
    name: 'unit',
    folders: [...PRODUCT, 'demo'].map((name) => `test/${name}`),
    skip: always,
    run: tap(2, 120),
  },
  { name: 'story', folders: ['test/story'], skip: always, run: tap(2, 120) },
  { name: 'conventions', folders: ['test/conventions'], skip: always, run: tap(2, 60) },
  { name: 'netns', folders: ['test/netns'], skip: netnsProblem, run: tap(1, 180) },
  { name: 'kube', folders: ['test/kube'], skip: kubeProblem, run: afterBuilding(tap(1, 1800)) },
  { name: 'kernel', folders: ['test/guest'], skip: kernelProblem, run: tap(1, 900) },
]
