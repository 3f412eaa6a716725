/** Opens a site for one command: its file, its objects and its state. */
import type { ClusterApi } from '../cluster/cluster-api.ts'
import { FileCluster } from '../cluster/files/file-cluster.ts'
import { type SiteConfig, readSiteFile } from '../cluster/files/site-file.ts'
import { SystemClock } from '../reconcile/clock.ts'
import type { Logger } from '../runtime/logger.ts'
import { createLogger } from '../runtime/pino-logger.ts'

export interface OpenSite {
  readonly config: SiteConfig
  readonly cluster: ClusterApi
}

/** Opens, works, closes, also on failure. Throws what the site file or the state have to say. */
export async function withSite<T>(
  file: string,
  signal: AbortSignal,
  work: (site: OpenSite) => Promise<T>,
  logger: Logger = createLogger('cli', 'warn'),
): Promise<T> {
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
