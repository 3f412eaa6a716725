/** `npm run demo:kube`: the README's commands on three Kubernetes clusters on this machine. See README.md. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { requirePackages } from '../../scripts/install-system-packages.ts'
import { buildAll } from '../../test/kube/support/build-all.ts'
import { kubeletMissing } from '../../test/kube/support/test-kubelet-world.ts'
import { atExit } from '../../test/support/at-exit.ts'
import { Interruption, onInterruption } from '../interruption.ts'
import { type Report, jsonReport, personReport } from '../report.ts'
import { keepClusters, nothingIsKept } from './keep.ts'
import { FOLDER_PREFIX, sweepKept } from './kept-clusters.ts'
import { reportStory } from './story.ts'

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean', default: false },
      flat: { type: 'boolean', default: false },
      keep: { type: 'boolean', default: false },
      sweep: { type: 'boolean', default: false },
    },
  })
  if (values.sweep) {
    const count = await sweepKept()
    process.stdout.write(count === 0 ? 'nothing was kept\n' : 'removed\n')
    return
  }
  requireMachine()
  if (values.keep) nothingIsKept()
  const report = values.json ? jsonReport(process.stdout, process.stderr) : personReport(process.stdout)
  const stop = new AbortController()
  onInterruption((by) => {
    stop.abort(by)
    if (values.keep) return
    report.finish(by.message)
    // What was made is taken away by exit handlers.
    process.exit(by.exitCode)
  })
  const account = values.json ? process.stderr : process.stdout
  account.write(
    'the first run builds the programs of the clusters from Go modules, which takes four minutes on two cores\n',
  )
  await buildAll()
  process.exitCode = values.keep
    ? await keepClusters(values, stop.signal).catch((error: unknown) => interrupted(error, report))
    : await runToTheEnd(values.flat, report)
  // Whatever a failed story had under way would go on in a world that is gone.
  process.exit()
}

/** Gives the exit code of a demo that was stopped; throws what is no interruption. */
function interrupted(error: unknown, report: Report): number {
  if (!(error instanceof Interruption)) throw error
  report.finish(error.message)
  return error.exitCode
}

/** Throws with what this machine lacks, and what to do about it. */
function requireMachine(): void {
  if (process.getuid?.() !== 0)
    throw new Error('the demo creates network namespaces; run it as root: npm run demo:kube')
  requirePackages('kube')
  const missing = kubeletMissing()
  if (missing === undefined) return
  throw new Error(
    `this demo runs Kubernetes itself: ${missing}. Install Go, at least as new as test/kube/go.mod says, and put it on PATH`,
  )
}

/** Gives the exit code; nothing is left. */
async function runToTheEnd(flat: boolean, report: Report): Promise<number> {
  const directory = mkdtempSync(join(tmpdir(), FOLDER_PREFIX))
  atExit('folders', () => rmSync(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 }))
  try {
    const world = await reportStory({ directory, flat, keep: false }, report)
    const exitCode = report.finish()
    await world.stop()
    return exitCode
  } catch (error) {
    return report.finish((error as Error).message)
  }
}

main().catch((error: unknown) => {
  process.stderr.write(`${(error as Error).message}\n`)
  process.exitCode = 1
})
