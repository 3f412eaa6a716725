/** Opens a site for one command: its file, its objects and its state. */
import { existsSync } from 'node:fs'
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
}

/** Opens, works, closes, also on failure. Throws what the site file or the state have to say. */
export async function withSite<T>(
  file: string,
  { signal, output, logger = new PlainLogger(output) }: OpenSiteInit,
  work: (site: OpenSite) => Promise<T>,
): Promise<T> {
  if (!existsSync(file)) {
    throw new UserError(`--site ${quoted(file)}: no such file`, {
      hint: 'name the site file with --site FILE, or run this in the folder that has site.yaml',
    })
  }
  const config = await readSiteFile(file)
  const cluster = new FileCluster(
    { clock: new SystemClock(), logger },
    { objects: config.objects, state: config.state },
  )
  try {
    signal.throwIfAborted()
    return await work({ config, cluster })
  } finally {
    await cluster.close()
  }
}
