/** A cluster that has joined, as an administrator sees it: the site file is the one that join put there. */
import { parseSiteFile } from '../../../kubeapi/files/site-file.ts'
import { type KubeApi, openKubeApi } from '../../../kubeapi/kube/kube-api.ts'
import { SITE_CONFIG, SITE_KEY } from '../../../install/names.ts'
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { PlainLogger } from '../../plain-logger.ts'
import type { OpenSite, OpenSiteInit } from '../../open-site.ts'
import { type KubeTarget, targetFlags } from '../../target.ts'
import type { ClusterAdmin } from './admin.ts'
import { interruption } from '../../within-time.ts'
import { adminOf } from './open-admin.ts'
import { explainRefusal } from './refused-access.ts'

export interface OpenAdmin {
  readonly api: KubeApi
  readonly admin: ClusterAdmin
}

/**
 * Opens a cluster for installing, looking or cleaning up; closes it at the end. Throws UserError where the server does
 * not let us in, and after the signal; else what the work throws.
 */
export async function withAdmin<T>(
  target: KubeTarget,
  clock: Clock,
  { signal, output, env, logger = new PlainLogger(output) }: OpenSiteInit,
  work: (open: OpenAdmin) => Promise<T>,
): Promise<T> {
  const { kubeconfig, context } = target
  const api = await openKubeApi(
    { clock, logger },
    { kubeconfig, context, namespace: SYSTEM_NAMESPACE, ...(env === undefined ? {} : { env }) },
  )
  try {
    signal.throwIfAborted()
    if (target.by !== undefined) output.remark(`${api.access.title}, by ${target.by}\n`)
    return await work({ api, admin: adminOf(api) })
  } catch (error) {
    if (signal.aborted) throw interruption(signal, `${api.access.title} at ${api.access.server.origin}`)
    throw await explainRefusal(error, api.access, clock)
  } finally {
    await api.close()
  }
}

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
        `${admin.title}: Sealane is not installed there: no ConfigMap ${SYSTEM_NAMESPACE}/${SITE_CONFIG}`,
        { hint: `first: sealane join ${targetFlags(target, admin.contextName)} --token-file FILE` },
      )
    }
    return work({ config: parseSiteFile(`ConfigMap ${SYSTEM_NAMESPACE}/${SITE_CONFIG}`, text), api, admin })
  })
}
