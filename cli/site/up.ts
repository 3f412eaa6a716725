/** Runs the parts of a site, or prints what they would apply. Implements `sealane up`. */
import type { SiteConfig } from '../../kubeapi/files/files.ts'
import { LogSwitch, type LogThreshold, createLogger } from '../../runtime/logging/logging.ts'
import { type RunSiteInit, printPlans, processMetrics, runSite } from '../../compose/site/site.ts'
import { type CommandContext, withSite } from '../context/context.ts'

export interface UpInit extends Omit<RunSiteInit, 'signal' | 'logLevel'> {
  readonly logLevel: LogThreshold
  /** The path of the site file. */
  readonly site: string
  readonly dryRun: boolean
}

/**
 * Runs until the signal, or until the site has left. Throws UserError for missing prerequisites, and the errors of the
 * parts.
 */
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
