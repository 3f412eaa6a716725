/**
 * `node test/run-tiers.ts TIER… [PATH…]`: runs the tiers, or just the files at those paths with the settings of their
 * tiers. Then prints the table of what ran and what was skipped and why, and a line `FLAKY file` for each file that
 * failed and then passed alone.
 * SEALANE_REQUIRE_TIERS=unit,netns,… turns a skip into a failure: of a whole tier, and of a single test inside it.
 * SEALANE_TURN=number has the long files of a tier take turns (turns.ts); those left out are named.
 * SEALANE_FLAKY_FILE=path has the FLAKY lines written at the end of that file, too.
 */
import { appendFileSync } from 'node:fs'
import { type ChosenFiles, chooseFiles } from './choose-files.ts'
import { failures } from './file-report.ts'
import { type Outcome, runTier } from './run-tier.ts'
import { TIERS, type Tier } from './tiers.ts'
import { parseTurn, shareOf } from './turns.ts'

export interface RunInit {
  readonly tiers: readonly Tier[]
  /** Names of tiers, and paths of files. */
  readonly words: readonly string[]
  /** The folder from which paths are meant. */
  readonly from: string
  /** Names of tiers in which a skip is a failure. */
  readonly required: readonly string[]
  /** See turns.ts. */
  readonly turn?: number | undefined
  readonly flakyFile: string | undefined
  readonly say: (text: string) => void
}

/** Gives the exit code: 0 when nothing failed, 2 when the words mean nothing. */
export async function runTiers({ tiers, words, from, required, turn, flakyFile, say }: RunInit): Promise<number> {
  const chosen = choose(tiers, words, from)
  if (typeof chosen === 'string') {
    say(`${chosen}\nusage: run-tiers ${tiers.map((tier) => tier.name).join('|')} … [PATH …]\n`)
    return 2
  }
  const outcomes: Outcome[] = []
  for (const { tier, files: all, named } of chosen) {
    const { files, left } = shareOf(tier, all, named ? undefined : turn)
    if (left.length > 0) say(`tier ${tier.name}: left to another turn: ${left.join(', ')}\n`)
    outcomes.push(await runTier(tier, { files, required: required.includes(tier.name), say }))
  }
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

/** The files, or what is wrong with the words. */
function choose(tiers: readonly Tier[], words: readonly string[], from: string): readonly ChosenFiles[] | string {
  if (words.length === 0) return 'no tier and no file is named'
  try {
    return chooseFiles(words, { tiers, from })
  } catch (error) {
    return (error as Error).message
  }
}

function table(outcomes: readonly Outcome[]): string {
  const rows = outcomes.map(({ tier, state, seconds, detail }) => {
    return `${tier.padEnd(12)} ${state.padEnd(8)} ${seconds.toFixed(1).padStart(6)} s  ${detail}`
  })
  return `${['tier         result    time     detail', ...rows].join('\n')}\n`
}

const flakyLine = (file: string): string => `FLAKY ${file}`

/** Each with what failed the first time; the whole log is where it ran. */
function flakyLines(outcomes: readonly Outcome[]): string {
  const parts = outcomes
    .flatMap(({ flaky }) => flaky)
    .map((said) => `${flakyLine(said.file)}\n${failures(said).replace(/^(?=.)/gm, '    ')}`)
  return parts.join('')
}

/** Who names a file wants it run. */
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

if (import.meta.main) {
  const code = runTiers({
    tiers: TIERS,
    words: process.argv.slice(2),
    // npm starts its scripts in the folder of package.json, and says here where its user was.
    from: process.env['INIT_CWD'] ?? process.cwd(),
    required: (process.env['SEALANE_REQUIRE_TIERS'] ?? '').split(','),
    turn: parseTurn(process.env['SEALANE_TURN']),
    flakyFile: process.env['SEALANE_FLAKY_FILE'],
    say: (text) => void process.stdout.write(text),
  })
  await code.then(
    (exitCode) => (process.exitCode = exitCode),
    (error: unknown) => {
      console.error(error instanceof Error ? error.message : error)
      process.exitCode = 1
    },
  )
}
