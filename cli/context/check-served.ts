/** Whether a cluster has what is to be shown: a command that follows a kind that is not there waits for ever. */
import { KIND_PLACES } from '../../kubeapi/kube/kube.ts'
import type { Kind } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ClusterAdmin } from './cluster-admin.ts'

/**
 * Throws UserError for a missing CRD, with what brings it back, and what the server says to who may not read a kind.
 */
export async function checkServed(
  admin: Pick<ClusterAdmin, 'title' | 'knows' | 'list'>,
  { kinds, flags }: { readonly kinds: readonly Kind[]; readonly flags: string },
  signal: AbortSignal,
): Promise<void> {
  for (const kind of kinds) {
    const { apiVersion, plural } = KIND_PLACES[kind]
    if (await admin.knows({ apiVersion, kind }, signal)) {
      await admin.list(apiVersion, kind, { limit: 1 }, signal)
      continue
    }
    const [group = ''] = apiVersion.split('/')
    throw new UserError(`${admin.title}: its CustomResourceDefinition ${plural}.${group} is missing`, {
      hint: `bring it back: sealane join ${flags}`,
    })
  }
}
