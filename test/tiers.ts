/** The tiers of tests: what each needs and how it is run. */
import { spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { buildAll } from './kube/support/build-all.ts'
import { kubeProgramsMissing } from './kube/support/kube-programs.ts'
import { type FileSaid, assertionsOf, recordOf, runFiles } from './run-files.ts'
import { PRODUCT } from './support/source-tree.ts'
import { AGAIN } from './support/again.ts'
import { type SkippedTest, skippedTests } from './support/skipped-tests.ts'

export interface TierRun {
  readonly passed: number
  readonly failed: number
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

/** `jobs` files at once, each `seconds` at most. */
function files(jobs: number, seconds: number): Tier['run'] {
  return async (paths) => {
    const said = await runFiles(paths, { jobs, seconds, onEnd: tell })
    const record = recordOf(said)
    return { ...assertionsOf(said), skipped: skippedTests(record) }
  }
}

/** What is about time, or takes the whole machine, is tried with nothing beside it; the rest two at a time. */
function twoAtOnce(seconds: number, isAlone: RegExp): Tier['run'] {
  return async (paths) => {
    const rest = await files(2, seconds)(paths.filter((path) => !isAlone.test(path)))
    const alone = await files(1, seconds)(paths.filter((path) => isAlone.test(path)))
    return {
      passed: rest.passed + alone.passed,
      failed: rest.failed + alone.failed,
      skipped: [...rest.skipped, ...alone.skipped],
    }
  }
}

/** What lanes do in time. */
const LANES = /\/gateway-/
/** How long something may take, how many calls may be lost, or more than three clusters. */
const CLUSTERS = /gateway|five-clusters|agents|install|day-two|node-life|control-plane|bad-|image/

/** A line for each file, and under it what failed. */
function tell(said: FileSaid): void {
  const { passed, failed } = assertionsOf([said])
  const count = failed === 0 ? `${passed} ok` : `${failed} of ${passed + failed} FAILED`
  console.log(`${count.padStart(16)} ${(said.ms / 1000).toFixed(1).padStart(6)} s  ${said.file}`)
  for (const [line] of said.output.matchAll(MEASURED_AGAIN)) console.log(`${' '.repeat(28)}${line.trim()}`)
  if (failed > 0) process.stdout.write(failures(said))
}

const MEASURED_AGAIN = new RegExp(`^ *# ${AGAIN}.*`, 'gm')
const MOST_LINES = 400
const MOST_ERRORS = 4000

/** What failed, each with the lines behind it that say why, and the end of what the file wrote to stderr. */
function failures({ output, errors, fault }: FileSaid): string {
  const lines = output.split('\n')
  const shown = new Set<number>()
  for (const [i, line] of lines.entries()) {
    if (!/^ *not ok\b/.test(line)) continue
    for (let n = i; n < i + 30 && (n === i || !/^ *(not )?ok\b/.test(lines[n] ?? '')); n += 1) shown.add(n)
  }
  const text = [...shown].slice(0, MOST_LINES).map((n) => lines[n])
  return `${[...text, errors.slice(-MOST_ERRORS).trimEnd(), fault ?? ''].filter((part) => part !== '').join('\n')}\n`
}

/** The time of a test is for what it tests: what it needs built is built before. */
function afterBuilding(tests: Tier['run']): Tier['run'] {
  return async (files) => {
    const started = performance.now()
    try {
      await buildAll()
    } catch (error) {
      console.log(error instanceof Error ? error.message : error)
      return { passed: 0, failed: 1, skipped: [] }
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
    // More than processors: some wait for a server's deadline.
    run: files(3, 120),
  },
  { name: 'story', folders: ['test/story'], skip: always, run: files(2, 120) },
  { name: 'conventions', folders: ['test/conventions'], skip: always, run: files(2, 60) },
  { name: 'netns', folders: ['test/netns'], skip: netnsProblem, run: twoAtOnce(180, LANES) },
  { name: 'hostile', folders: ['test/hostile'], skip: netnsProblem, run: files(2, 300) },
  { name: 'kube', folders: ['test/kube'], skip: kubeProblem, run: afterBuilding(twoAtOnce(1800, CLUSTERS)) },
  { name: 'kernel', folders: ['test/guest'], skip: kernelProblem, run: files(1, 2400) },
]
