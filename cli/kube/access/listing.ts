/** Looking around before something is changed: what this user may not see is not known, and no reason to stop. */
import { KubeError } from '../../../kubeapi/kube/kube-error.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import type { ClusterAdmin, ListScope } from './admin.ts'

/** Undefined where the server says 403. */
export async function unlessForbidden<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof KubeError && error.status === 403) return undefined
    throw error
  }
}

/** Undefined where this user may not list them. */
export function listIfAllowed(
  admin: Pick<ClusterAdmin, 'list'>,
  apiVersion: string,
  kind: string,
  signal: AbortSignal,
  scope: ListScope = {},
): Promise<readonly ManifestObject[] | undefined> {
  return unlessForbidden(() => admin.list(apiVersion, kind, scope, signal))
}
