/** Runs the parts of a site, or prints what they would apply. Implements `sealane up`. */
import { type SiteTexts, formatProblem, keepSiteText, planSiteCheck, readSiteTexts } from '../../kubeapi/files/files.ts'
import { LogSwitch, type LogThreshold, type Logger, createLogger } from '../../runtime/logging/logging.ts'
import { type RunSiteInit, type Site, printPlans, processMetrics, runSite } from '../../compose/site/site.ts'
import { type CommandContext, PlainLogger, withSite } from '../context/context.ts'

export interface UpInit extends Omit<RunSiteInit, 'signal' | 'logLevel' | 'onStart'> {
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
  const texts = await readSiteTexts(init.site)
  const metrics = dryRun
    ? undefined
    : (site: Pick<Site, 'config' | 'remote'>) => processMetrics(site, { node, components })
  const open = { signal, output, logger, serves: true, components, metrics, anyNode: true, node }
  await withSite(init.site, open, async (site) => {
    // A node without the folder has no files of its own to warn of.
    const warn = (to: Logger): void => (site.remote === undefined ? warnOfFiles(texts, to) : undefined)
    const run = { ...init, logLevel, signal, onStart: warn }
    if (dryRun) warn(new PlainLogger(output))
    if (dryRun) output.answer(await printPlans(site, run))
    else {
      // The site runs also where its state folder takes no file.
      if (site.remote === undefined && 'text' in texts.site)
        await keepSiteText(texts.site.file, texts.site.text).catch(() => undefined)
      await runSite(site, run)
    }
  })
}

/** More text than this takes so long to parse that it would delay the start. */
const MOST_TEXT = 2 * 1024 * 1024

/**
 * Warns of what `sealane site check` finds. The site starts anyway: a file that has become invalid keeps its last good
 * content, and other files count.
 */
function warnOfFiles(texts: SiteTexts, logger: Logger): void {
  const sizes =
    typeof texts.objects === 'string' ? [] : texts.objects.map((one) => ('text' in one ? one.text.length : 0))
  if (sizes.reduce((sum, size) => sum + size, 0) > MOST_TEXT) return
  const { config, problems } = planSiteCheck(texts)
  // Its problems are told where it is opened.
  if (config === undefined) return
  for (const problem of problems) {
    const { file: place, line, column, reason: why } = problem
    const fields = { reason: 'InvalidValue' as const, file: place, line, column, why }
    logger.warn(`the site has a problem: ${formatProblem(problem)}`, fields)
  }
}
