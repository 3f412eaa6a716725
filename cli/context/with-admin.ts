/** Opens a cluster with an administrator's kubeconfig, whether or not Sealane is installed there. */
import { X509Certificate } from 'node:crypto'
import { type KubeApi, KubeError, type ServerAccess, openKubeApi } from '../../kubeapi/kube/kube.ts'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { UserError } from '../../runtime/runtime.ts'
import { type ClusterAdmin, adminOf } from './cluster-admin.ts'
import type { OpenSiteInit } from './open-site.ts'
import { PlainLogger } from './output.ts'
import type { KubeTarget } from './target.ts'
import { interruption } from './timeout.ts'

// Explains to the user why an API server refuses access, and what to do about it.

const NEW_LOGIN = 'log in again, or use another kubeconfig or --context; this request changed nothing'

/**
 * Returns a UserError if the caller lacks credentials or rights, or if the server did not answer. Returns every other
 * error unchanged.
 */
async function explainRefusal(error: unknown, access: ServerAccess, clock: Clock): Promise<unknown> {
  if (!(error instanceof KubeError)) return error
  const { title } = access
  if (error.reason === 'NoConnection' || error.reason === 'NoAnswer') {
    const hint = 'check that the address in the kubeconfig is correct and can be reached from here'
    return new UserError(`${title}: ${error.message}`, { hint, cause: error })
  }
  if (error.code === 'Unauthorized') {
    const expired = await expiredCertificate(access, clock).catch(() => undefined)
    if (expired !== undefined) return new UserError(`${title}: ${expired}`, { hint: NEW_LOGIN, cause: error })
    if (error.reason === 'NoLogin')
      return new UserError(`${title}: ${error.message}`, { hint: NEW_LOGIN, cause: error })
    const text = 'the API server rejected these credentials (401 Unauthorized): they are wrong or have expired'
    return new UserError(`${title}: ${text}`, { hint: NEW_LOGIN, cause: error })
  }
  if (error.code === 'Forbidden') {
    const hint = 'use a kubeconfig that has this right, such as that of a cluster administrator'
    return new UserError(`${title}: ${error.message}`, { hint, cause: error })
  }
  return error
}

/** One sentence if the client certificate has expired; the server itself answers only 401. Undefined otherwise. */
async function expiredCertificate(access: ServerAccess, clock: Clock): Promise<string | undefined> {
  const { cert } = await access.credentials(AbortSignal.timeout(1000))
  if (cert === undefined) return undefined
  const { validToDate } = new X509Certificate(cert)
  if (validToDate.getTime() > clock.now()) return undefined
  return `its client certificate expired at ${validToDate.toISOString()}`
}

export interface OpenAdmin {
  readonly api: KubeApi
  readonly admin: ClusterAdmin
}

/**
 * Opens a cluster, runs `work` and closes the cluster at the end. Throws UserError if the server refuses access or if
 * the signal aborts, else what `work` throws.
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
    if (target.by !== undefined) output.remark(`${api.access.title}, from ${target.by}\n`)
    return await work({ api, admin: adminOf(api) })
  } catch (error) {
    if (signal.aborted) throw interruption(signal, `${api.access.title} at ${api.access.server.origin}`)
    throw await explainRefusal(error, api.access, clock)
  } finally {
    await api.close()
  }
}
