/**
 * For `leave --force`: parts on nodes that cannot run, and so cannot clean up, are put back as they were installed,
 * with an image that is known to run in this cluster. They find that the cluster leaves, and take themselves out.
 */
import { objectName } from '../../../install/names.ts'
import { planMember } from '../../../install/plan-member.ts'
import { DEFAULT_VALUES, type InstallValues } from '../../../install/values.ts'
import { SYSTEM_NAMESPACE } from '../../../model/spec-constants.ts'
import { refOf, titleOf } from '../../../kubeapi/kube/write/object-ref.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import type { LeaveClusterInit } from './leave-step.ts'
import { isRolledOut, rolloutOf } from '../wait/rollout.ts'
import { imageValues } from '../join/values-options.ts'

interface PodShape {
  readonly spec?: { readonly containers?: readonly { readonly image?: string; readonly imagePullPolicy?: string }[] }
  readonly status?: { readonly conditions?: readonly { readonly type: string; readonly status: string }[] }
}

export async function mendNodeParts(admin: ClusterAdmin, { signal, say }: LeaveClusterInit): Promise<void> {
  const values = await runningImage(admin, signal)
  const names = [objectName('gateway'), objectName('routeagent')]
  const objects = planMember(values).flatMap((part) => part.objects)
  for (const object of objects.filter(({ kind, metadata }) => kind === 'DaemonSet' && names.includes(metadata.name))) {
    const found = await admin.get(refOf(object), signal)
    if (found !== undefined && isRolledOut(rolloutOf(found))) continue
    await admin.apply(object, { dryRun: false }, signal)
    say(`  mended    ${titleOf(refOf(object))}  (to clean up; it had pods that do not run)\n`)
  }
}

/** That of a pod of ours that is ready; else the one that would be installed now. */
async function runningImage(admin: ClusterAdmin, signal: AbortSignal): Promise<InstallValues> {
  const scope = { namespace: SYSTEM_NAMESPACE, labelSelector: 'app.kubernetes.io/name=sealane' }
  const pods = (await admin.list('v1', 'Pod', scope, signal)) as unknown as PodShape[]
  const ready = pods.filter(
    ({ status }) => status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true,
  )
  const { image, imagePullPolicy } = ready[0]?.spec?.containers?.[0] ?? {}
  if (image === undefined) return DEFAULT_VALUES
  return imageValues(DEFAULT_VALUES, image, imagePullPolicy ?? DEFAULT_VALUES.image.pullPolicy)
}
