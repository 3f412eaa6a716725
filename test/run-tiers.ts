/**
 * `node test/run-tiers.ts TIER…`: runs the tiers, then prints the table of what ran and what was skipped and why.
 * SEALANE_REQUIRE_TIERS=unit,netns,… turns a skip into a failure: of a whole tier, and of a single test inside it.
 */
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, relative } from 'node:path'
import type { SkippedTest } from './support/skipped-tests.ts'
import { TIERS, type Tier } from './tiers.ts'

const ROOT = join(import.meta.dirname, '..')

interface Outcome {
  readonly tier: string
  readonly state: 'passed' | 'failed' | 'skipped'
  readonly detail: string
  readonly passed: number
  readonly failed: number
  readonly seconds: number
  readonly skipped: readonly SkippedTest[]
}

function testFiles(folder: string): string[] {
  if (!existsSync(folder)) return []
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name)
    if (statSync(path).isDirectory()) return testFiles(path)
    return name.endsWith('.test.ts') ? [relative(ROOT, path)] : []
  })
}

async function runTier(tier: Tier): Promise<Outcome> {
  const skip = await tier.skip()
  if (skip !== undefined) {
    return { tier: tier.name, state: 'skipped', detail: skip, passed: 0, failed: 0, seconds: 0, skipped: [] }
  }
  const files = tier.folders.flatMap((folder) => testFiles(join(ROOT, folder))).sort()
  const started = performance.now()
  const { passed, failed, skipped } = await tier.run(files)
  const seconds = (performance.now() - started) / 1000
  const ok = failed === 0 && passed > 0
  const detail = `${files.length} files, ${passed} assertions${passed === 0 ? ' (nothing ran)' : ''}${skipped.length > 0 ? `, ${skipped.length} skipped (each says why above)` : ''}`
  return {
    tier: tier.name,
    state: ok ? 'passed' : 'failed',
    detail,
    passed,
    failed: ok ? 0 : Math.max(1, failed),
    seconds,
    skipped,
  }
}

function printTable(outcomes: readonly Outcome[]): void {
  console.log('\ntier         result    time     detail')
  for (const row of outcomes) {
    console.log(`${row.tier.padEnd(12)} ${row.state.padEnd(8)} ${row.seconds.toFixed(1).padStart(6)} s  ${row.detail}`)
  }
}

async function main(): Promise<void> {
  const names = process.argv.slice(2)
  const unknown = names.filter((name) => !TIERS.some((tier) => tier.name === name))
  if (names.length === 0 || unknown.length > 0) {
    console.error(`usage: run-tiers ${TIERS.map((tier) => tier.name).join('|')} …`)
    process.exitCode = 2
    return
  }
  const outcomes: Outcome[] = []
  for (const tier of TIERS.filter((candidate) => names.includes(candidate.name))) outcomes.push(await runTier(tier))
  printTable(outcomes)
  const missing = missingWhereRequired(outcomes, (process.env['SEALANE_REQUIRE_TIERS'] ?? '').split(','))
  for (const line of missing) console.log(line)
  const passed = outcomes.reduce((sum, row) => sum + row.passed, 0)
  const failed = outcomes.reduce((sum, row) => sum + row.failed, 0) + missing.length
  console.log(`${passed} passed, ${failed} failed`)
  process.exitCode = failed > 0 ? 1 : 0
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
  await main().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error)
    process.exitCode = 1
  })
}
