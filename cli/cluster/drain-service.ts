/** Drains one exported service of a cluster or a site by the annotation of its ServiceExport, and ends that. */
import type { ObjectRef } from '../../kubeapi/kube/kube.ts'
import { ANNOTATION_DRAIN, drainOf } from '../../model/services/services.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ClusterAdmin } from '../context/context.ts'

export interface DrainServiceInit {
  readonly namespace: string
  readonly name: string
  readonly drained: boolean
  /** Only with `drained`: importers end open connections too. */
  readonly now: boolean
  readonly signal: AbortSignal
}

/**
 * Returns whether anything was changed. Throws UserError if the service is not exported here, and the errors of the
 * driver.
 */
export async function drainService(
  admin: Pick<ClusterAdmin, 'get' | 'merge'>,
  { namespace, name, drained, now, signal }: DrainServiceInit,
): Promise<boolean> {
  const ref: ObjectRef = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', namespace, name }
  const exported = await admin.get(ref, signal)
  if (exported === undefined) {
    throw new UserError(`service ${namespace}/${name} is not exported by this cluster or site`, {
      hint: 'its exporters drain it, each its own part: run this command there; see: sealane show exports',
    })
  }
  const wanted = !drained ? undefined : now ? 'now' : 'open connections go on'
  if (drainOf(exported) === wanted) return false
  const value = wanted === undefined ? null : wanted === 'now' ? 'now' : 'true'
  await admin.merge(ref, { metadata: { annotations: { [ANNOTATION_DRAIN]: value } } }, signal)
  return true
}
