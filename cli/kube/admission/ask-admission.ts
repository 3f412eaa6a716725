/** Whether a cluster takes what is to be installed: asked of it object by object, before anything is changed. */
import type { ManifestObject } from '../../../install/manifest-object.ts'
import { UserError } from '../../../runtime/user-error.ts'
import { refOf, titleOf } from '../../../kubeapi/kube/write/object-ref.ts'
import type { ClusterAdmin } from '../access/admin.ts'

export interface AskAdmissionInit {
  /** Installs although something is refused: says what, and goes on. */
  readonly force: boolean
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

/**
 * Throws UserError (`AdmissionRefuses`) that names every object which the server's own rules refuse: admission
 * policies, webhooks, quotas. It sees rules about workloads, not those about the pods that these make.
 */
export async function requireAdmission(
  admin: Pick<ClusterAdmin, 'title' | 'refusal'>,
  objects: readonly ManifestObject[],
  { force, signal, say }: AskAdmissionInit,
): Promise<void> {
  const refusals = await Promise.all(objects.map((object) => admin.refusal(object, signal)))
  const lines = refusals.flatMap((refusal, i) => {
    const object = objects[i]
    return refusal === undefined || object === undefined ? [] : [`  ${titleOf(refOf(object))}: ${refusal}`]
  })
  if (lines.length === 0) return
  const text = [`${admin.title}: it refuses ${lines.length} of ${objects.length} objects:`, ...lines].join('\n')
  if (force) {
    say(`${text}\n`)
    return
  }
  throw new UserError(text, { reason: 'AdmissionRefuses', hint: HINT })
}

const HINT = 'mend what is refused or make exceptions, or go on with --force; nothing was installed'
