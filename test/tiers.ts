/** The tiers of tests: what each needs and how it is run. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
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
      return { ...done, skipped: existsSync(record) ? skippedTests(readFileSync(record, 'utf8')) : [] }
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
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
  { name: 'kube', folders: ['test/kube'], skip: kubeProblem, run: tap(1, 1800) },
  { name: 'kernel', folders: ['test/guest'], skip: kernelProblem, run: tap(1, 900) },
]
