/** The demo's sites for benchmarks, joined and with their lanes up; they are always removed at the end. */
import { Lab } from '../demo/lab.ts'
import { startPrograms } from '../demo/programs.ts'
import { Sites, siteProcesses } from '../demo/sites.ts'
import { type SiteRow, buildTopology, siteRows } from '../demo/topology.ts'
import { requirePackages } from '../scripts/install-system-packages.ts'

export interface JoinedSites {
  readonly lab: Lab
  readonly sites: Sites
  readonly rows: readonly SiteRow[]
}

export interface JoinedSitesInit {
  readonly names: readonly SiteRow['name'][]
  /** Is called when the site folders exist, and before any process reads them. */
  readonly prepare?: (joined: JoinedSites) => Promise<void>
}

export async function withJoinedSites<T>(init: JoinedSitesInit, work: (joined: JoinedSites) => Promise<T>): Promise<T> {
  if (process.getuid?.() !== 0) throw new Error('this benchmark makes network namespaces: run it as root')
  requirePackages('bench')
  const lab = await Lab.open('sealane-bench')
  const stop = (): void => void lab.close().finally(() => process.exit(130))
  process.once('SIGINT', stop)
  process.once('SIGTERM', stop)
  try {
    const joined = {
      lab,
      sites: new Sites(lab),
      rows: siteRows(false, 1).filter((row) => init.names.includes(row.name)),
    }
    await start(joined, init)
    return await work(joined)
  } finally {
    process.off('SIGINT', stop)
    process.off('SIGTERM', stop)
    await lab.close()
  }
}

async function start(joined: JoinedSites, init: JoinedSitesInit): Promise<void> {
  const { lab, sites, rows } = joined
  await buildTopology(lab, rows)
  await startPrograms(lab, rows)
  await sites.startBroker()
  for (const row of rows) await sites.copyExample(row)
  await init.prepare?.(joined)
  for (const row of rows) await sites.join(row.name)
  const processes = rows.flatMap((row) => siteProcesses(row).map((process) => ({ process, site: row.name })))
  for (const { process, site } of processes) sites.start(process, site)
  await Promise.all(processes.map(({ process }) => sites.ready(process)))
  await sites.lanesUp(rows)
}
