/** `npm run demo`: three sites on one machine, joined for real. See README.md, "Try it on one machine". */
import { parseArgs } from 'node:util'
import { requirePackages } from '../scripts/install-system-packages.ts'
import { PARIS_NODES, kernelDump, leaves, lifeChecks } from './checks/life.ts'
import { serviceChecks } from './checks/services.ts'
import { powerLoss } from './checks/power-loss.ts'
import { trafficChecks } from './checks/traffic.ts'
import { type World, servicesAreKnown } from './checks/world.ts'
import { Interruption, onInterruption } from './interruption.ts'
import { keepText } from './keep.ts'
import { Lab } from './lab.ts'
import { startPrograms } from './programs.ts'
import { type Report, jsonReport, personReport } from './report.ts'
import { runCheck } from './run-check.ts'
import { Sites, siteProcesses } from './sites.ts'
import { buildTopology, siteRows } from './topology.ts'
import { until } from './until.ts'

const PREFIX = 'sealane-demo'

interface Options {
  readonly json: boolean
  readonly flat: boolean
  readonly keep: boolean
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      json: { type: 'boolean' },
      flat: { type: 'boolean' },
      keep: { type: 'boolean' },
      sweep: { type: 'boolean' },
    },
  })
  if (values.sweep === true) {
    await Lab.sweep(PREFIX)
    return
  }
  const options: Options = { json: values.json ?? false, flat: values.flat ?? false, keep: values.keep ?? false }
  const report = options.json ? jsonReport(process.stdout, process.stderr) : personReport(process.stdout)
  requirePackages('demo')
  if (process.getuid?.() !== 0) throw new Error('the demo creates network namespaces; run it as root: npm run demo')
  const stop = new AbortController()
  onInterruption((by) => stop.abort(by))
  const lab = await Lab.open(PREFIX)
  let failure: Error | undefined
  try {
    await Promise.race([story(lab, options, report), aborted(stop.signal)])
  } catch (error) {
    failure = error as Error
  }
  const exitCode = report.finish(failure?.message)
  process.exitCode = failure instanceof Interruption ? failure.exitCode : exitCode
  if (options.keep) (options.json ? process.stderr : process.stdout).write(keepText(lab))
  else await lab.close()
  // Whatever was under way when the demo was stopped would go on in a world that is gone.
  process.exit()
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    const stop = (): void => reject(signal.reason as Error)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop)
  })
}

async function story(lab: Lab, options: Options, report: Report): Promise<void> {
  const rows = siteRows(options.flat)
  const sites = new Sites(lab)
  const world: World = { lab, sites, rows, flat: options.flat }
  report.step(
    `building an internet and three sites, pod ranges ${rows.map((row) => `${row.podNet}.0.0/16`).join(', ')}`,
  )
  await buildTopology(lab, rows)
  await startPrograms(lab, rows)
  const before = new Map<string, string>()
  for (const node of PARIS_NODES) before.set(node, await kernelDump(world, node))
  report.step('starting the broker')
  await sites.startBroker()
  report.step('joining milano, paris and tokyo, each with its own token')
  for (const row of rows) {
    await sites.copyExample(row)
    await sites.join(row.name)
  }
  report.step('starting agent, gateway, routeagent and dns of each site')
  const processes = rows.flatMap((row) => siteProcesses(row).map((process) => ({ process, site: row.name })))
  for (const { process, site } of processes) sites.start(process, site)
  await Promise.all(processes.map(({ process }) => sites.ready(process)))
  await sites.lanesUp(rows)
  report.step('all links are up: of each gateway with each gateway of the other sites')
  await until('the services to be known in tokyo and paris', 20_000, () => servicesAreKnown(world))
  const checks = [
    ...serviceChecks,
    ...trafficChecks,
    powerLoss,
    ...lifeChecks,
    ...(options.keep ? [] : [leaves(before)]),
  ]
  for (const check of checks) await runCheck(world, check, report)
}

main().catch((error: unknown) => {
  process.stderr.write(`${(error as Error).message}\n`)
  process.exitCode = 1
})
