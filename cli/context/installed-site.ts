/**
 * Opens the site of a cluster that has joined, as an administrator. The site file is the one that `sealane join` stored
 * in the cluster.
 */
import { parseSiteFile } from '../../kubeapi/files/files.ts'
import { SITE_CONFIG, SITE_KEY } from '../../install/values/values.ts'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { OpenSite, OpenSiteInit } from './open-site.ts'
import { type KubeTarget, targetFlags } from './target.ts'
import { withAdmin } from './with-admin.ts'

/** Throws UserError when Sealane is not installed in the cluster. */
export function withInstalledSite<T>(
  target: KubeTarget,
  clock: Clock,
  init: OpenSiteInit,
  work: (site: OpenSite) => Promise<T>,
): Promise<T> {
  return withAdmin(target, clock, init, async ({ api, admin }) => {
    const ref = { apiVersion: 'v1', kind: 'ConfigMap', namespace: SYSTEM_NAMESPACE, name: SITE_CONFIG }
    const found = await admin.get(ref, init.signal)
    const text = (found?.['data'] as Record<string, string> | undefined)?.[SITE_KEY]
    if (text === undefined) {
      throw new UserError(
        `${admin.title}: Sealane is not installed: there is no ConfigMap ${SYSTEM_NAMESPACE}/${SITE_CONFIG}`,
        { hint: `join this cluster first: sealane join ${targetFlags(target, admin.contextName)} --token-file FILE` },
      )
    }
    return work({ config: parseSiteFile(`ConfigMap ${SYSTEM_NAMESPACE}/${SITE_CONFIG}`, text), api, admin })
  })
}
