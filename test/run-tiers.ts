/**
 * `node test/run-tiers.ts TIER… [PATH…] [--changed[=COMMIT]]`: runs the tiers, or only the files at those paths with
 * the settings of their tiers, or only the files nearest to what has changed since a commit (default HEAD). Then it
 * prints a table of what ran and what was skipped and why, and a line `FLAKY file` for each file that failed and then
 * passed alone.
 *
 * SEALANE_REQUIRE_TIERS=unit,netns,… turns a skip into a failure: of a whole tier, and of a single test inside it.
 * SEALANE_TURN=number makes files of a tier take turns (turns.ts), and runs half of them if their paths have changed
 * since SEALANE_CHANGED_SINCE=commit; the files that were left out are named.
 * SEALANE_FLAKY_FILE=path also appends the FLAKY lines to that file.
 * SEALANE_UPDATE_CASES=1 stores the number of cases of each file (cases.txt), instead of comparing it.
 */
import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type CaseList, readCases, updateCases } from './cases.ts'
import { changedSince, distances, nearest } from './changed.ts'
import { type ChosenFiles, ROOT, chooseFiles } from './choose-files.ts'
import { failures } from './file-report.ts'
import { type Outcome, runTier } from './run-tier.ts'
import { TIERS, type Tier } from './tiers.ts'
import { type Turn, parseTurn, shareOf } from './turns.ts'

export interface RunInit {
  readonly tiers: readonly Tier[]
  /** Names of tiers, paths of files, and `--changed[=COMMIT]`. */
  readonly words: readonly string[]
  /** The folder that paths are relative to. */
  readonly from: string
  /** The names of the tiers in which a skip is a failure. */
  readonly required: readonly string[]
  /** See turns.ts. */
  readonly turn?: Turn | undefined
  readonly flakyFile: string | undefined
  /** Files that have been flaky before. Default: none. */
  readonly knownFlaky?: readonly string[]
  /** Default: no file has a known number of cases. */
  readonly cases?: CaseList
  readonly say: (text: string) => void
  /** Is called with the outcomes of all tiers. */
  readonly onEnd?: (outcomes: readonly Outcome[]) => void
}

/** Returns the exit code: 0 if nothing failed, 2 if the words mean nothing. */
export async function runTiers(init: RunInit): Promise<number> {
  const { required, turn, flakyFile, say } = init
  const chosen = choose(init)
  if (typeof chosen === 'string') {
    const names = init.tiers.map((tier) => tier.name).join('|')
    say(`${chosen}\nusage: run-tiers ${names} … [PATH …] [--changed[=COMMIT]]\n`)
    return 2
  }
  const knownFlaky = new Set(init.knownFlaky)
  const run = ({ tier, files: all, named }: ChosenFiles): Promise<Outcome> => {
    const { files, left } = shareOf(tier, all, named ? undefined : turn)
    if (left.length > 0) say(`tier ${tier.name}: left to another turn: ${left.join(', ')}\n`)
    const { cases = new Map() } = init
    return runTier(tier, { files, required: required.includes(tier.name), cases, knownFlaky, say })
  }
  const outcomes: Outcome[] = []
  for (const group of besideEachOther(chosen)) outcomes.push(...(await Promise.all(group.map(run))))
  init.onEnd?.(outcomes)
  say(`\n${table(outcomes)}${flakyLines(outcomes)}`)
  const flaky = outcomes.flatMap((outcome) => outcome.flaky)
  if (flakyFile !== undefined && flaky.length > 0) {
    appendFileSync(flakyFile, flaky.map(({ file }) => `${flakyLine(file)}\n`).join(''))
  }
  const missing = [...missingWhereNamed(outcomes, chosen), ...missingWhereRequired(outcomes, required)]
  for (const line of missing) say(`${line}\n`)
  const passed = outcomes.reduce((sum, row) => sum + row.passed, 0)
  const failed = outcomes.reduce((sum, row) => sum + row.failed, 0) + missing.length
  const tail = flaky.length > 0 ? `, ${flaky.length} FLAKY (failed, then passed alone)` : ''
  say(`${passed} passed, ${failed} failed${tail}\n`)
  return failed > 0 ? 1 : 0
}

/** Groups neighbouring tiers that may run at once, in their order. */
function besideEachOther(chosen: readonly ChosenFiles[]): readonly (readonly ChosenFiles[])[] {
  const groups: ChosenFiles[][] = []
  for (const one of chosen) {
    const before = groups.at(-1)
    if (one.tier.beside === true && before?.at(-1)?.tier.beside === true) before.push(one)
    else groups.push([one])
  }
  return groups
}

/** The chosen files, or what is wrong with the words. */
function choose({ tiers, words: all, from, say }: RunInit): readonly ChosenFiles[] | string {
  const words = all.filter((word) => !/^--changed(=|$)/.test(word))
  const changed = all.find((word) => !words.includes(word))
  if (words.length === 0) return 'no tier and no file is named'
  try {
    const chosen = chooseFiles(words, { tiers, from })
    return changed === undefined ? chosen : nearestOf(chosen, changedSince(/=(.*)$/.exec(changed)?.[1] ?? 'HEAD'), say)
  } catch (error) {
    return (error as Error).message
  }
}

/** As many of the nearest files of a tier as take a minute together; the others are named. */
function nearestOf(
  chosen: readonly ChosenFiles[],
  changed: readonly string[],
  say: (text: string) => void,
): readonly ChosenFiles[] {
  say(`changed: ${changed.length === 0 ? 'nothing' : changed.slice(0, 20).join(', ')}\n`)
  const steps = distances(changed)
  const all = chosen.map((one) => {
    const reached = one.tier.looksAtAll === true ? one.files : nearest(one.files, steps)
    const files = reached.slice(0, one.tier.nearest ?? Infinity)
    const left = reached.length - files.length
    if (left > 0) say(`tier ${one.tier.name}: ${left} more files that the change reaches are left out as farther\n`)
    return { ...one, files }
  })
  return all.filter(({ files }) => files.length > 0)
}

function table(outcomes: readonly Outcome[]): string {
  const rows = outcomes.map(({ tier, state, seconds, detail }) => {
    return `${tier.padEnd(12)} ${state.padEnd(8)} ${seconds.toFixed(1).padStart(6)} s  ${detail}`
  })
  return `${['tier         result    time     detail', ...rows].join('\n')}\n`
}

const flakyLine = (file: string): string => `FLAKY ${file}`

/** Each flaky file with its first failures; the complete log is in the output of the run. */
function flakyLines(outcomes: readonly Outcome[]): string {
  const parts = outcomes
    .flatMap(({ flaky }) => flaky)
    .map((said) => `${flakyLine(said.file)}\n${failures(said).replace(/^(?=.)/gm, '    ')}`)
  return parts.join('')
}

/** The tiers that did not run although one of their files was named. */
function missingWhereNamed(outcomes: readonly Outcome[], chosen: readonly ChosenFiles[]): string[] {
  return outcomes.flatMap(({ tier, state, detail }) => {
    const files = chosen.find((one) => one.named && one.tier.name === tier)?.files ?? []
    return state === 'skipped' ? files.map((file) => `${file} did not run: tier ${tier} ${detail}`) : []
  })
}

/** A line for each tier, and each test in a tier, that had to run and did not. */
export function missingWhereRequired(
  outcomes: readonly Pick<Outcome, 'tier' | 'state' | 'detail' | 'skipped'>[],
  required: readonly string[],
): string[] {
  return outcomes
    .filter(({ tier }) => required.includes(tier))
    .flatMap(({ tier, state, detail, skipped }) => [
      ...(state === 'skipped' ? [`tier ${tier} is required here but was skipped: ${detail}`] : []),
      ...skipped.map(
        ({ file, name, reason }) => `tier ${tier} is required here but ${file} skipped "${name}": ${reason}`,
      ),
    ])
}

/** The turn that the environment names, if any. */
function turnOf(env: NodeJS.ProcessEnv): Turn | undefined {
  const number = parseTurn(env['SEALANE_TURN'])
  if (number === undefined) return undefined
  const since = env['SEALANE_CHANGED_SINCE'] ?? ''
  return { number, changed: since === '' ? undefined : changedSince(since) }
}

/** The first word of each line; the rest of a line is for people. */
function readFlaky(): readonly string[] {
  const lines = readFileSync(join(import.meta.dirname, 'flaky.txt'), 'utf8').split('\n')
  return lines.filter((line) => line !== '' && !line.startsWith('#')).map((line) => line.split(' ')[0] ?? '')
}

async function main(): Promise<number> {
  const { env, argv } = process
  const isUpdate = env['SEALANE_UPDATE_CASES'] === '1'
  return runTiers({
    tiers: TIERS,
    words: argv.slice(2),
    // npm starts its scripts in the folder of package.json, and this variable has the folder in which the user ran it.
    from: env['INIT_CWD'] ?? process.cwd(),
    required: (env['SEALANE_REQUIRE_TIERS'] ?? '').split(','),
    turn: turnOf(env),
    flakyFile: env['SEALANE_FLAKY_FILE'],
    knownFlaky: readFlaky(),
    cases: isUpdate ? new Map() : readCases(),
    say: (text) => void process.stdout.write(text),
    onEnd: (outcomes) => {
      if (!isUpdate) return
      updateCases(
        outcomes.flatMap(({ said }) => said),
        (file) => existsSync(join(ROOT, file)),
      )
    },
  })
}

if (import.meta.main) {
  await main().then(
    (exitCode) => (process.exitCode = exitCode),
    (error: unknown) => {
      console.error(error instanceof Error ? error.message : error)
      process.exitCode = 1
    },
  )
}
