/** Drains one exported service of a cluster or a site by the annotation of its ServiceExport, and ends that. */
import type { ObjectRef } from '../../kubeapi/kube/kube.ts'
import { ANNOTATION_DRAIN } from '../../model/services/services.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ClusterAdmin } from '../context/context.ts'

export interface DrainServiceInit {
  readonly namespace: string
  readonly name: string
  readonly drained: boolean
  readonly signal: AbortSignal
}

/**
 * Returns whether anything was changed. Throws UserError if the service is not exported here, and the errors of the
 * driver.
 */
export async function drainService(
  admin: Pick<ClusterAdmin, 'get' | 'merge'>,
  { namespace, name, drained, signal }: DrainServiceInit,
): Promise<boolean> {
  const ref: ObjectRef = { apiVersion: 'multicluster.x-k8s.io/v1beta1', kind: 'ServiceExport', namespace, name }
  const exported = await admin.get(ref, signal)
  if (exported === undefined) {
    throw new UserError(`service ${namespace}/${name} is not exported by this cluster or site`, {
      hint: 'its exporters drain it, each its own part: run this command there; see: sealane show exports',
    })
  }
  if ((exported.metadata.annotations?.[ANNOTATION_DRAIN] === 'true') === drained) return false
  await admin.merge(ref, { metadata: { annotations: { [ANNOTATION_DRAIN]: drained ? 'true' : null } } }, signal)
  return true
}
