/** Reads what stands in a cluster of an earlier installation. */
import type { InstallValues } from '../../install/values.ts'
import { refOf, titleOf } from '../../cluster/kube/object-ref.ts'
import type { ClusterAdmin } from './admin.ts'
import { type StandingObjects, standingRefs } from './plan-standing-values.ts'

/** Every object of ours that is there. Throws KubeError. */
export async function readStanding(
  admin: Pick<ClusterAdmin, 'get'>,
  values: InstallValues,
  signal: AbortSignal,
): Promise<StandingObjects> {
  const refs = standingRefs(values).map(refOf)
  const found = await Promise.all(refs.map((ref) => admin.get(ref, signal)))
  return new Map(found.flatMap((object) => (object === undefined ? [] : [[titleOf(refOf(object)), object] as const])))
}
