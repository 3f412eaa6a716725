/** Runs the parts of a site, or prints what they would apply: the work of `sealane up`. */
import type { SiteConfig } from '../../kubeapi/files/site-file.ts'
import { LogSwitch, type LogThreshold } from '../../runtime/logging/logger.ts'
import { createLogger } from '../../runtime/logging/pino-logger.ts'
import { type RunSiteInit, printPlans, processMetrics, runSite } from '../../compose/site/run-site.ts'
import type { CommandContext } from '../context/command-context.ts'
import { withSite } from '../context/open-site.ts'

export interface UpInit extends Omit<RunSiteInit, 'signal' | 'logLevel'> {
  readonly logLevel: LogThreshold
  /** The site file. */
  readonly site: string
  readonly dryRun: boolean
}

/** Until stopped, or until the site has left. Throws UserError for what is missing; the rest is the parts' own. */
export async function upSite(init: UpInit, { signal, output }: CommandContext): Promise<void> {
  const { components, node, dryRun } = init
  const logLevel = new LogSwitch(init.logLevel)
  const logger = dryRun ? undefined : createLogger('site', logLevel)
  const metrics = dryRun ? undefined : (config: SiteConfig) => processMetrics(config, { node, components })
  await withSite(init.site, { signal, output, logger, serves: true, components, metrics }, async (site) => {
    const run = { ...init, logLevel, signal }
    if (dryRun) output.answer(await printPlans(site, run))
    else await runSite(site, run)
  })
}
