/** What an earlier installation left in a cluster: its objects, and what is said of it. */
import type { InstallValues } from '../../../install/values.ts'
import { ClusterApiError } from '../../../kubeapi/cluster-api.ts'
import { type ObjectRef, refOf, titleOf } from '../../../kubeapi/kube/write/object-ref.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { type InstalledObjects, installedRefs } from './plan-installed-values.ts'

/** Every object of ours that is there. Throws KubeError. */
export async function readInstalled(
  admin: Pick<ClusterAdmin, 'get'>,
  values: InstallValues,
  signal: AbortSignal,
): Promise<InstalledObjects> {
  const refs = installedRefs(values).map(refOf)
  const found = await Promise.all(refs.map((ref) => getIfServed(admin, ref, signal)))
  return new Map(found.flatMap((object) => (object === undefined ? [] : [[titleOf(refOf(object)), object] as const])))
}

/** Undefined also where the server does not know the kind: not every cluster has that of the Prometheus Operator. */
async function getIfServed(
  admin: Pick<ClusterAdmin, 'get'>,
  ref: ObjectRef,
  signal: AbortSignal,
): Promise<ManifestObject | undefined> {
  try {
    return await admin.get(ref, signal)
  } catch (error) {
    if (error instanceof ClusterApiError && error.code === 'NotFound') return undefined
    throw error
  }
}
