/** Opens what a command is about: a real cluster, or the site of a site file. */
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { OpenSite, OpenSiteInit } from './open-site.ts'
import type { KubeTarget } from './target.ts'

/** What withTarget() opens: the cluster where there is one, else the site file. */
export interface Target {
  readonly kube: KubeTarget | undefined
  readonly site: string
}

/**
 * Opens it, works, closes. Only the driver that is meant is loaded. Throws what the site file, the kubeconfig or the
 * cluster have to say.
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
