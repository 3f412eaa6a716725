/** Runs files of one tier, and a file that failed once more where the tier says so. */
import { failures, fileLine, wholeLog } from './file-report.ts'
import { type FileSaid, assertionsOf, recordOf, runFiles } from './run-files.ts'
import { type SkippedTest, skippedTests } from './support/skipped-tests.ts'
import type { Tier } from './tiers.ts'

/** More files than that fail because something is broken, not because the machine was busy. */
const MOST_RERUN = 4

const ALONE: AtOnce = { jobs: 1 }

type AtOnce = Pick<Tier, 'jobs' | 'most'>

export interface Outcome {
  readonly tier: string
  readonly state: 'passed' | 'failed' | 'skipped'
  readonly detail: string
  readonly passed: number
  readonly failed: number
  readonly seconds: number
  /** Tests that chose not to run. */
  readonly skipped: readonly SkippedTest[]
  /** Files that failed, and passed when they were run again, alone; as they ended the first time. */
  readonly flaky: readonly FileSaid[]
}

export interface TierInit {
  readonly files: readonly string[]
  /** Whether a test that is skipped counts as failed. */
  readonly required: boolean
  readonly say: (text: string) => void
}

type Ended = Pick<Outcome, 'flaky'> & { readonly said: readonly FileSaid[] }

export async function runTier(tier: Tier, init: TierInit): Promise<Outcome> {
  const skip = await tier.skip()
  if (skip !== undefined) return skippedOutcome(tier, skip)
  const started = performance.now()
  const ended = (await isPrepared(tier, init)) ? await rerunFailed(tier, await runAll(tier, init), init) : undefined
  const seconds = (performance.now() - started) / 1000
  const { said, flaky } = ended ?? { said: [], flaky: [] }
  const { passed, failed } = assertionsOf(said)
  const skipped = skippedTests(recordOf(said))
  const ok = failed === 0 && passed > 0
  const parts = [
    `${init.files.length} files`,
    `${passed} assertions${passed === 0 ? ' (nothing ran)' : ''}`,
    ...(skipped.length > 0 ? [`${skipped.length} skipped (each says why above)`] : []),
    ...(flaky.length > 0 ? [`${flaky.length} flaky (failed, then passed alone)`] : []),
  ]
  return {
    tier: tier.name,
    state: ok ? 'passed' : 'failed',
    detail: parts.join(', '),
    passed,
    failed: ok ? 0 : Math.max(1, failed),
    seconds,
    skipped,
    flaky,
  }
}

function skippedOutcome({ name }: Tier, detail: string): Outcome {
  return { tier: name, state: 'skipped', detail, passed: 0, failed: 0, seconds: 0, skipped: [], flaky: [] }
}

/** The time of a test is for what it tests: what it needs built is built before. */
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

function run(tier: Tier, init: TierInit, { jobs, most }: AtOnce): Promise<readonly FileSaid[]> {
  const onEnd = (said: FileSaid): void => {
    init.say(fileLine(said))
    if (!isFailed(said, init)) return
    init.say(tier.rerun === true ? wholeLog(said) : failures(said))
  }
  return runFiles(init.files, { jobs, most: most ?? jobs, seconds: tier.seconds, onEnd })
}

/** After all others have ended, so that nothing is beside it. */
async function rerunFailed(tier: Tier, first: readonly FileSaid[], init: TierInit): Promise<Ended> {
  const failed = first.filter((said) => isFailed(said, init))
  if (tier.rerun !== true || failed.length === 0) return { said: first, flaky: [] }
  if (failed.length > MOST_RERUN) {
    init.say(`${failed.length} files of tier ${tier.name} failed: more than ${MOST_RERUN} are not run again\n`)
    return { said: first, flaky: [] }
  }
  const files = failed.map(({ file }) => file)
  init.say(`run once more, alone: ${files.join(', ')}\n`)
  const second = new Map((await run(tier, { ...init, files }, ALONE)).map((said) => [said.file, said]))
  const flaky = failed.filter((said) => isGoodAfter(said, second.get(said.file), init))
  const said = first.map((one) => (flaky.includes(one) ? (second.get(one.file) ?? one) : one))
  return { said, flaky }
}

function isFailed(said: FileSaid, { required }: TierInit): boolean {
  return assertionsOf([said]).failed > 0 || (required && skipsOf(said) > 0)
}

/** A test that failed is not mended by skipping it. */
function isGoodAfter(first: FileSaid, second: FileSaid | undefined, init: TierInit): boolean {
  if (second === undefined || isFailed(second, init)) return false
  return assertionsOf([second]).passed > 0 && skipsOf(second) <= skipsOf(first)
}

function skipsOf(said: FileSaid): number {
  return skippedTests(recordOf([said])).length
}
