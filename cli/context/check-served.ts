/**
 * Checks that a cluster serves the kinds that a command shows. A watch of a kind that does not exist would wait
 * forever.
 */
import { KIND_PLACES } from '../../kubeapi/kube/kube.ts'
import type { Kind } from '../../model/model.ts'
import { UserError } from '../../runtime/runtime.ts'
import type { ClusterAdmin } from './cluster-admin.ts'

/**
 * Throws UserError for a missing CRD, with the command that restores it, and the server's error if this user may not
 * list a kind.
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
      hint: `restore it: sealane join ${flags}`,
    })
  }
}
