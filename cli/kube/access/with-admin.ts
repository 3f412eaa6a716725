/** A cluster as an administrator sees it, whatever is installed there. */
import { type KubeApi, openKubeApi } from '../../../kubeapi/kube/kube-api.ts'
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import type { OpenSiteInit } from '../../open-site.ts'
import { PlainLogger } from '../../plain-logger.ts'
import type { KubeTarget } from '../../target.ts'
import { interruption } from '../../within-time.ts'
import type { ClusterAdmin } from './admin.ts'
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
