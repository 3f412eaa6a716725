/**
 * The site file as a part that starts takes it. `join` and `site check` refuse a file with a problem; a part that runs
 * again must not end because somebody edited the file meanwhile, possibly for another node. So the last valid content
 * counts, which each start keeps in the state folder. Where there is none, a gateway whose row is wrong takes no lane, and
 * everything else runs.
 */
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { replaceFile } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { type FileProblem, InvalidFileError, formatProblem } from './problem-board.ts'
import { type SiteConfig, parseSiteDocument, readSiteText } from './site-file.ts'

/** `kept`: the content of an earlier start counts. `rows`: the wrong rows of gateways take no lane. */
export interface RunningSite {
  readonly config: SiteConfig
  readonly from: 'file' | 'kept' | 'rows'
  readonly problems: readonly FileProblem[]
}

/** `kept` is the last valid content. Throws InvalidFileError if nothing can run with these. Pure. */
export function planRunningSite(path: string, content: string, kept: string | undefined): RunningSite {
  const parsed = parseSiteDocument(path, content)
  const { config, problems, onlyRows } = parsed
  if (config !== undefined && problems.length === 0) return { config, from: 'file', problems }
  const before = kept === undefined ? undefined : parseSiteDocument(path, kept)
  if (before?.config !== undefined && before.problems.length === 0)
    return { config: before.config, from: 'kept', problems }
  if (onlyRows !== undefined) return { config: onlyRows, from: 'rows', problems }
  throw new InvalidFileError(problems)
}

/** Reads the site file for a part that starts, and warns of its problems. Throws InvalidFileError. */
export async function readRunningSite(path: string, logger: Logger): Promise<SiteConfig> {
  const content = await readSiteText(path)
  const { state } = parseSiteDocument(path, content)
  const site = planRunningSite(path, content, await readKept(state))
  warnOfSite(site, logger)
  return site.config
}

export function warnOfSite({ from, problems }: RunningSite, logger: Logger): void {
  if (from === 'file') return
  const effect = from === 'kept' ? 'its last valid content counts' : 'the gateways in these lines take no lane'
  const why = problems.map(formatProblem).join('; ')
  logger.warn(`the site file is not valid: ${effect}`, { reason: 'InvalidValue', why })
}

/** Keeps a valid content for later starts. A site that is a Kubernetes cluster has no state folder for it. */
export async function keepSiteText(path: string, content: string): Promise<void> {
  const { config, problems } = parseSiteDocument(path, content)
  if (config === undefined || config.kubernetes !== undefined || problems.length > 0) return
  if ((await readKept(config.state)) === content) return
  await mkdir(config.state, { recursive: true })
  await replaceFile(keptFile(config.state), content, 0o644)
}

function keptFile(state: string): string {
  return join(state, 'site.yaml')
}

async function readKept(state: string): Promise<string | undefined> {
  return readFile(keptFile(state), 'utf8').catch(() => undefined)
}
