/** Opens a site for one command: its file, its objects and its state. */
import { mkdirSync, statSync } from 'node:fs'
import type { ClusterApi } from '../cluster/cluster-api.ts'
import { FileCluster } from '../cluster/files/file-cluster.ts'
import { type SiteConfig, readSiteFile } from '../cluster/files/site-file.ts'
import { SystemClock } from '../reconcile/clock.ts'
import type { Logger } from '../runtime/logger.ts'
import { UserError } from '../runtime/user-error.ts'
import { type CommandContext, quoted } from './context.ts'
import { PlainLogger } from './plain-logger.ts'

export interface OpenSite {
  readonly config: SiteConfig
  readonly cluster: ClusterApi
}

export interface OpenSiteInit extends CommandContext {
  /** Who hears of files that cannot be read; the reader of stderr by default. */
  readonly logger?: Logger | undefined
  /** Runs until the signal. Everything else has failed when the signal comes first. */
  readonly serves?: boolean
}

/** Opens, works, closes, also on failure. Throws what the site file or the state have to say. */
export async function withSite<T>(
  file: string,
  { signal, output, logger = new PlainLogger(output), serves = false }: OpenSiteInit,
  work: (site: OpenSite) => Promise<T>,
): Promise<T> {
  const kind = statSync(file, { throwIfNoEntry: false })
  if (kind === undefined || kind.isDirectory()) {
    const problem = kind === undefined ? 'no such file' : 'expected a file, it is a folder'
    throw new UserError(`--site ${quoted(file)}: ${problem}`, {
      hint: 'name the site file with --site FILE, or run this in the folder that has site.yaml',
    })
  }
  const config = await readSiteFile(file)
  makeState(config)
  const cluster = new FileCluster(
    { clock: new SystemClock(), logger },
    { objects: config.objects, state: config.state },
  )
  try {
    signal.throwIfAborted()
    return await work({ config, cluster })
  } catch (error) {
    // No cause: the frame of the process takes a signal's own reason for success.
    throw signal.aborted && !serves ? new UserError('interrupted before it was done') : error
  } finally {
    await cluster.close()
  }
}

/** What cannot be read would look like a site that knows nothing. */
function makeState({ state, file }: SiteConfig): void {
  try {
    mkdirSync(state, { recursive: true })
  } catch (cause) {
    throw new UserError(
      `${state}: cannot be used as state folder (spec.state of ${file}): ${(cause as Error).message}`,
      {
        cause,
      },
    )
  }
}
