/** The pods of a broker on a cluster. */
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { refOf } from '../../../kubeapi/kube/write/object-ref.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { isReady } from '../wait/node-rollout.ts'
import { selectorText } from '../wait/pod-trouble.ts'
import type { ClusterAdmin } from './admin.ts'

/** A pod of the broker that is ready. Throws UserError when there is none; `flags` name the cluster in it. */
export async function brokerPod(...args: Parameters<typeof brokerPods>): Promise<string> {
  const [first] = await brokerPods(...args)
  return first
}

/** All that are ready, those that are being deleted last. Throws what brokerPod() throws. */
export async function brokerPods(
  admin: Pick<ClusterAdmin, 'title' | 'list'>,
  { namespace, flags }: { readonly namespace: string; readonly flags: string },
  signal: AbortSignal,
): Promise<readonly [string, ...string[]]> {
  const pods = await admin.list('v1', 'Pod', { namespace, labelSelector: selectorText('broker') }, signal)
  const going = (pod: ManifestObject): boolean => 'deletionTimestamp' in pod.metadata
  const ready = pods.filter(isReady).sort((a, b) => Number(going(a)) - Number(going(b)))
  const [first, ...others] = ready.map((pod) => refOf(pod).name)
  if (first !== undefined) return [first, ...others]
  const state = pods.length === 0 ? 'there is none' : 'it is not ready'
  throw new UserError(`${admin.title}: no broker to ask: ${state}`, {
    hint: `first: sealane broker deploy ${flags}`,
  })
}
