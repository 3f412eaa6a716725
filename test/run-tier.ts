/** Runs files of one tier, and repeats a failed file if the tier allows it. */
import { type CaseList, lostCases } from './cases.ts'
import { failures, fileLine, wholeLog } from './file-report.ts'
import { type FileSaid, countsOf, runFiles } from './run-files.ts'
import { readTap } from './tap-record.ts'
import type { Tier } from './tiers.ts'

/** If more files than this fail, something is broken, and it was not only a busy machine. */
const MOST_RERUN = 4

const ALONE: AtOnce = { jobs: 1 }

type AtOnce = Pick<Tier, 'jobs' | 'most' | 'batches'>

/** A test that skipped itself. */
export interface SkippedTest {
  readonly file: string
  /** The name, after those of the tests around it: `a > b`. */
  readonly name: string
  readonly reason: string
}

export interface Outcome {
  readonly tier: string
  readonly state: 'passed' | 'failed' | 'skipped'
  readonly detail: string
  /** The number of cases. */
  readonly passed: number
  readonly failed: number
  readonly seconds: number
  /** The last run of each file. */
  readonly said: readonly FileSaid[]
  readonly skipped: readonly SkippedTest[]
  /** Files that failed, and passed when they were run again alone; these are their first runs. */
  readonly flaky: readonly FileSaid[]
}

export interface TierInit {
  readonly files: readonly string[]
  /** Whether a test that is skipped counts as failed. */
  readonly required: boolean
  /** The known number of cases of each file; fewer is a failure. */
  readonly cases: CaseList
  /** Files that have been flaky before; these are not run again. */
  readonly knownFlaky: ReadonlySet<string>
  readonly say: (text: string) => void
}

type Ended = Pick<Outcome, 'flaky' | 'said'>

export async function runTier(tier: Tier, init: TierInit): Promise<Outcome> {
  const skip = await tier.skip()
  if (skip !== undefined) return skippedOutcome(tier, skip)
  const started = performance.now()
  const { said, flaky } = (await isPrepared(tier, init)) ? await runAndRepeat(tier, init) : { said: [], flaky: [] }
  const seconds = (performance.now() - started) / 1000
  const counts = countsOf(said)
  const lost = lostCases(init.cases, said)
  for (const line of lost) init.say(`${line}\n`)
  const failed = counts.failed + lost.length
  const ok = failed === 0 && counts.passed > 0
  const skipped = skippedTests(said)
  const parts = [
    `${init.files.length} files`,
    `${counts.passed} tests${counts.passed === 0 ? ' (nothing ran)' : ''}`,
    ...(skipped.length > 0 ? [`${skipped.length} skipped (each says why above)`] : []),
    ...(lost.length > 0 ? [`${lost.length} files lost tests`] : []),
    ...(flaky.length > 0 ? [`${flaky.length} flaky (failed, then passed alone)`] : []),
  ]
  return {
    tier: tier.name,
    state: ok ? 'passed' : 'failed',
    detail: parts.join(', '),
    passed: counts.passed,
    failed: ok ? 0 : Math.max(1, failed),
    seconds,
    said,
    skipped,
    flaky,
  }
}

export function skippedTests(said: readonly Pick<FileSaid, 'file' | 'output'>[]): readonly SkippedTest[] {
  return said.flatMap(({ file, output }) =>
    readTap(output)
      .cases.filter(({ state }) => state === 'skipped')
      .map(({ name, reason }) => ({ file, name, reason })),
  )
}

function skippedOutcome({ name }: Tier, detail: string): Outcome {
  return { tier: name, state: 'skipped', detail, passed: 0, failed: 0, seconds: 0, said: [], skipped: [], flaky: [] }
}

/** What the tests need is built first, so that their time limit covers only the tests. */
async function isPrepared(tier: Tier, { say }: TierInit): Promise<boolean> {
  if (tier.prepare === undefined) return true
  const started = performance.now()
  try {
    await tier.prepare()
  } catch (error) {
    say(`${error instanceof Error ? error.message : String(error)}\n`)
    return false
  }
  say(
    `what the tests of tier ${tier.name} need is there after ${((performance.now() - started) / 1000).toFixed(1)} s\n`,
  )
  return true
}

async function runAndRepeat(tier: Tier, init: TierInit): Promise<Ended> {
  const first = await runAll(tier, init)
  if (tier.batches !== undefined) return { said: await named(tier, first, init), flaky: [] }
  return rerunFailed(tier, first, init)
}

async function runAll(tier: Tier, init: TierInit): Promise<readonly FileSaid[]> {
  const { alone, long = [] } = tier
  const isAlone = (file: string): boolean => alone?.test(file) ?? false
  const placeOf = (file: string): number => {
    const place = long.findIndex((pattern) => pattern.test(file))
    return place < 0 ? long.length : place
  }
  const ordered = init.files.filter((file) => !isAlone(file)).sort((a, b) => placeOf(a) - placeOf(b))
  return [
    ...(await run(tier, { ...init, files: ordered }, tier)),
    ...(await run(tier, { ...init, files: init.files.filter(isAlone) }, ALONE)),
  ]
}

function run(tier: Tier, init: TierInit, { jobs, most, batches }: AtOnce): Promise<readonly FileSaid[]> {
  const onEnd = (said: FileSaid): void => {
    init.say(fileLine(said))
    if (!isFailed(said, init)) return
    init.say(tier.rerun === true ? wholeLog(said) : failures(said))
  }
  return runFiles(init.files, { jobs, most: most ?? jobs, batches, seconds: tier.seconds, onEnd })
}

/**
 * Files that failed in a shared process are run again, each in a process of its own, to find what fails. A file that
 * then passes still counts as failed, because another file interfered with it.
 */
async function named(tier: Tier, first: readonly FileSaid[], init: TierInit): Promise<readonly FileSaid[]> {
  const failed = first.filter((said) => isFailed(said, init))
  if (failed.length === 0) return first
  const files = failed.map(({ file }) => file)
  init.say(`run again, each in a process of its own: ${files.join(', ')}\n`)
  const again = new Map((await run(tier, { ...init, files }, { jobs: tier.jobs })).map((said) => [said.file, said]))
  return first.map((said) => {
    const alone = again.get(said.file)
    if (alone === undefined) return said
    return isFailed(alone, init) ? alone : { ...said, fault: `${said.fault ?? 'it failed'}; it passes alone` }
  })
}

/** The failed files run after all others have ended, so that nothing runs beside them. */
async function rerunFailed(tier: Tier, first: readonly FileSaid[], init: TierInit): Promise<Ended> {
  const failed = first.filter((said) => isFailed(said, init))
  if (tier.rerun !== true || failed.length === 0) return { said: first, flaky: [] }
  if (failed.length > MOST_RERUN) {
    init.say(`${failed.length} files of tier ${tier.name} failed: more than ${MOST_RERUN} are not run again\n`)
    return { said: first, flaky: [] }
  }
  const known = failed.filter(({ file }) => init.knownFlaky.has(file))
  for (const { file } of known) init.say(`${file} has been flaky before (test/flaky.txt): it gets no second chance\n`)
  const files = failed.map(({ file }) => file).filter((file) => !init.knownFlaky.has(file))
  if (files.length === 0) return { said: first, flaky: [] }
  init.say(`run once more, alone: ${files.join(', ')}\n`)
  const second = new Map((await run(tier, { ...init, files }, ALONE)).map((said) => [said.file, said]))
  const flaky = failed.filter((said) => isGoodAfter(said, second.get(said.file), init))
  const said = first.map((one) => (flaky.includes(one) ? (second.get(one.file) ?? one) : one))
  return { said, flaky }
}

function isFailed(said: FileSaid, { required }: TierInit): boolean {
  const { failed, skipped } = countsOf([said])
  return failed > 0 || (required && skipped > 0)
}

/** A test that failed is not repaired by skipping it. */
function isGoodAfter(first: FileSaid, second: FileSaid | undefined, init: TierInit): boolean {
  if (second === undefined || isFailed(second, init)) return false
  const { passed, skipped } = countsOf([second])
  return passed > 0 && skipped <= countsOf([first]).skipped
}
