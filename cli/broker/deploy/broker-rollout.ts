/**
 * The progress of a broker's rollout, and two problems that do not go away by themselves: a StatefulSet never replaces
 * a pod that is not ready, even after its template has changed, and a claim may wait for a volume that is never
 * created.
 */
import { type InstallValues, objectName } from '../../../install/values/values.ts'
import { refOf } from '../../../kubeapi/kube/kube.ts'
import type { ClusterAdmin } from '../../context/context.ts'
import { readStorage } from './broker-place.ts'
import { type Missing, isReady, rolloutProgress, selectorText } from '../../installation/installation.ts'
import { isBound, volumeGap } from './plan-broker-place.ts'

type Hands = Pick<ClusterAdmin, 'get' | 'list' | 'remove'>

/** A probe for waitUntil(). */
export async function brokerProgress(
  admin: Hands,
  values: InstallValues,
  { signal, say }: { readonly signal: AbortSignal; readonly say: (text: string) => void },
): Promise<Missing | undefined> {
  const { namespace } = values.broker
  for (const name of await replaceStuckPods(admin, namespace, signal)) {
    say(`  removed   Pod ${namespace}/${name}  (not ready, from the previous version)\n`)
  }
  const { missing } = await rolloutProgress(admin, namespace, signal)
  if (missing === undefined || missing.mend !== undefined) return missing
  return (await missingVolume(admin, values, signal)) ?? missing
}

interface StatefulSetStatus {
  readonly observedGeneration?: number
  readonly updateRevision?: string
}

/**
 * Deletes pods of an earlier revision that are not ready, so that the StatefulSet creates new ones. The pods get their
 * full grace period, because two brokers must never use one volume at the same time. Returns the names of the pods.
 */
export async function replaceStuckPods(
  admin: Hands,
  namespace: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const ref = { apiVersion: 'apps/v1', kind: 'StatefulSet', namespace, name: objectName('broker') }
  const found = await admin.get(ref, signal)
  const { observedGeneration, updateRevision } = (found?.['status'] ?? {}) as StatefulSetStatus
  const { generation } = (found?.metadata ?? {}) as { readonly generation?: number }
  if (updateRevision === undefined || observedGeneration !== generation) return []
  const pods = await admin.list('v1', 'Pod', { namespace, labelSelector: selectorText('broker') }, signal)
  const stuck = pods.filter(
    (pod) =>
      pod.metadata.labels?.['controller-revision-hash'] !== updateRevision &&
      !isReady(pod) &&
      !('deletionTimestamp' in pod.metadata),
  )
  for (const pod of stuck) await admin.remove(refOf(pod), signal)
  return stuck.map(({ metadata }) => metadata.name)
}

async function missingVolume(
  admin: Pick<ClusterAdmin, 'get' | 'list'>,
  values: InstallValues,
  signal: AbortSignal,
): Promise<Missing | undefined> {
  const storage = await readStorage(admin, values, signal)
  if (storage.claim === undefined || isBound(storage.claim)) return undefined
  const world = { services: undefined, nodes: undefined, addressPools: undefined, workloads: undefined, ...storage }
  const gap = volumeGap(values, world)
  return gap && { what: 'broker', why: gap.what, mend: 'use --storage-class NAME, or create such a volume' }
}
