/**
 * `npm run test:conformance -- [--overlapping | --dual-stack] [--prefer-local] [--report FILE]`: the published suite of
 * the Multi-Cluster Services API on two real clusters that the command line has joined. With --prefer-local, a default
 * ClusterTrafficPolicy keeps calls near in both. It exits with 0 if every spec passed, with 1 if one did not, and with 2
 * if the suite could not be run.
 */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { atExit } from '../support/at-exit.ts'
import { eventually } from '../support/eventually.ts'
import { ROOT } from '../support/source-tree.ts'
import { ownChecks } from './conformance/own-checks.ts'
import { validate, tableOf } from './conformance/report.ts'
import { suiteProgram } from './conformance/suite-program.ts'
import { type Excuse, UNDER_TRANSLATION } from './conformance/under-translation.ts'
import { type JoinedClusters, startJoinedClusters } from './support/joined-clusters.ts'
import { kubeletMissing } from './support/test-kubelet-world.ts'
import { makeProgram } from './support/program.ts'
import { type ClusterRow, DUAL, FLAT, OVERLAPPING } from './support/two-clusters.ts'

const SUITE_DEADLINE_MS = 45 * 60_000

/** The kind of clusters. */
interface ConformanceWorld {
  readonly rows: readonly ClusterRow[]
  /** Specs that may fail on these clusters. */
  readonly excuses: readonly Excuse[]
  /** The name of the report that is kept. */
  readonly report: string
}

const GROUNDS = {
  flat: { rows: FLAT, excuses: [], report: 'report.yaml' },
  overlapping: { rows: OVERLAPPING, excuses: UNDER_TRANSLATION, report: 'report-overlapping.yaml' },
  'dual-stack': { rows: DUAL, excuses: [], report: 'report-dual-stack.yaml' },
} as const satisfies Readonly<Record<string, ConformanceWorld>>

interface ConformanceOptions {
  readonly context: ConformanceWorld
  readonly joinFlags: readonly string[]
  readonly report: string
}

function chosen(): ConformanceOptions {
  const options = {
    overlapping: { type: 'boolean', default: false },
    'dual-stack': { type: 'boolean', default: false },
    'prefer-local': { type: 'boolean', default: false },
    report: { type: 'string' },
  } as const
  const { values } = parseArgs({ options, allowPositionals: false })
  const [asked = 'flat', more] = (['overlapping', 'dual-stack'] as const).filter((name) => values[name])
  if (more !== undefined) throw new Error(`--${more} stands beside --${asked}: expected one of them`)
  const context = GROUNDS[asked]
  const joinFlags = values['prefer-local'] ? ['--prefer-local'] : []
  const name = values['prefer-local'] ? context.report.replace('.yaml', '-prefer-local.yaml') : context.report
  return { context, joinFlags, report: resolve(values.report ?? join(ROOT, 'build/conformance', name)) }
}

async function main(): Promise<number> {
  const { context, joinFlags, report } = chosen()
  const missing = kubeletMissing()
  if (missing !== undefined) throw new Error(`this machine ${missing}`)
  const directory = realpathSync(mkdtempSync(join(tmpdir(), 'sealane-conformance-')))
  atExit('folders', () => rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }))
  const say = stopwatch()
  const checkout = process.env['SEALANE_MCS_SUITE']
  say('building the suite')
  const suite = await suiteProgram({ directory, ...(checkout === undefined ? {} : { checkout }) })
  const clusters = await startJoinedClusters({
    directory: makeFolder(directory, 'clusters'),
    rows: context.rows,
    say,
    joinFlags,
  })
  try {
    say(`running ${suite.origin}`)
    const folder = makeFolder(directory, 'run')
    const log = await runSuite(suite.path, clusters, folder)
    keep(folder, report, log)
    say('checking what the suite rests on')
    const own = await ownChecks(sitesOf(clusters))
    return conclude(report, context, own)
  } finally {
    await clusters.stop()
    say('everything is stopped')
  }
}

function makeFolder(parent: string, name: string): string {
  const path = join(parent, name)
  mkdirSync(path)
  return path
}

/** Runs the suite until its report exists; returns its log. */
async function runSuite(path: string, { clusters, kubeconfig }: JoinedClusters, directory: string): Promise<string> {
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
  const args = [
    '-test.timeout=40m',
    '-ginkgo.no-color',
    '-ginkgo.v',
    `-contexts=${clusters.map(({ row }) => row.name).join(',')}`,
    '-organization=Sealane',
    '-project=Sealane',
    `-version=${version}`,
    '-url=https://sealane.io',
  ]
  const env = { ...process.env, KUBECONFIG: kubeconfig }
  const program = makeProgram({ name: 'suite', path, args, directory, env })
  program.start()
  await eventually(() => program.failure, {
    deadlineMs: SUITE_DEADLINE_MS,
    intervalMs: 500,
    say: 'the end of the suite',
  })
  const log = join(directory, 'suite.log')
  if (existsSync(join(directory, 'report.yaml'))) return log
  throw new Error(`the suite ${program.failure ?? ''} without a report:\n${program.log().slice(-4000)}`)
}

/** Keeps the reports and the log beside each other, under the requested name. */
function keep(folder: string, report: string, log: string): void {
  mkdirSync(dirname(report), { recursive: true })
  const stem = report.replace(/\.ya?ml$/, '')
  copyFileSync(join(folder, 'report.yaml'), report)
  copyFileSync(join(folder, 'report.html'), `${stem}.html`)
  writeFileSync(`${stem}.log`, readFileSync(log))
}

function conclude(report: string, { excuses }: ConformanceWorld, own: ReturnType<typeof validate>['rows']): number {
  const { rows, faults } = validate(readFileSync(report, 'utf8'), excuses)
  process.stdout.write(`\n${tableOf([...rows, ...own])}`)
  const all = [...faults, ...own.filter(({ result }) => result !== 'passed').map(({ spec }) => `failed: ${spec}`)]
  for (const fault of all) console.log(fault)
  console.log(`the report is ${report}`)
  return all.length === 0 ? 0 : 1
}

function sitesOf({ clusters }: JoinedClusters): Parameters<typeof ownChecks>[0] {
  return clusters.map(({ row, plane }) => ({ name: row.name, api: plane.api, kubeconfig: plane.kubeconfig }))
}

function stopwatch(): (line: string) => void {
  const started = performance.now()
  return (line) => console.log(`${((performance.now() - started) / 1000).toFixed(1).padStart(6)} s  ${line}`)
}

process.exitCode = await main().catch((error: unknown) => {
  console.error(`the conformance suite was not run: ${(error as Error).message}`)
  return 2
})
