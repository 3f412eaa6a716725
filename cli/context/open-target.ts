/** Opens the target of a command: a real cluster, or the site of a site file. */
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { OpenSite, OpenSiteInit } from './open-site.ts'
import type { KubeTarget } from './target.ts'

/** What withTarget() opens: the cluster if there is one, else the site file. */
export interface Target {
  readonly kube: KubeTarget | undefined
  readonly site: string
}

/**
 * Opens the target, runs `work` and closes the target. Loads only the driver that is needed. Throws the errors of the
 * site file, the kubeconfig or the cluster.
 */
export async function withTarget<T>(
  { kube, site }: Target,
  init: OpenSiteInit,
  work: (site: OpenSite) => Promise<T>,
): Promise<T> {
  if (kube === undefined) {
    const { withSite } = await import('./open-site.ts')
    return withSite(site, init, work)
  }
  const { withInstalledSite } = await import('./installed-site.ts')
  return withInstalledSite(kube, new SystemClock(), init, work)
}
