/**
 * The operations that draining and key rotation need, on a site without Kubernetes: objects come from its folders, and
 * a change of the user's object is written to its file.
 */
import type { ManifestObject } from '../../install/values/values.ts'
import { type MetadataChange, changeUserMetadata } from '../../kubeapi/files/files.ts'
import type { Kind } from '../../model/model.ts'
import type { ClusterAdmin, OpenSite } from '../context/context.ts'

export type SiteAdmin = Pick<ClusterAdmin, 'get' | 'list' | 'merge'>

/** `merge` throws UserObjectError, which says what to change by hand, and changes labels and annotations. */
export function siteAdmin({ api, config }: Pick<OpenSite, 'api' | 'config'>): SiteAdmin {
  const listed = async (kind: string, signal: AbortSignal): Promise<readonly ManifestObject[]> => {
    const cache = api.cache(kind as Kind)
    await cache.whenSynced(signal)
    return cache.list() as unknown as readonly ManifestObject[]
  }
  return {
    list: (_apiVersion, kind, _scope, signal) => listed(kind, signal),
    get: async ({ kind, name, namespace }, signal) => {
      const all = await listed(kind, signal)
      return all.find(({ metadata }) => metadata.name === name && metadata.namespace === namespace)
    },
    merge: async ({ kind, name, namespace }, patch) => {
      const { metadata = {} } = patch as { readonly metadata?: MetadataChange }
      const place = namespace === undefined ? {} : { namespace }
      await changeUserMetadata(config.objects, { kind: kind as Kind, name, ...place }, metadata)
    },
  }
}

/** How to add a gateway to a site, for the hint of a drain that would cut it off. */
export function gatewayAdvice(file: string): string {
  return `name another node in spec.gateways of ${file}, and start "sealane up" on it`
}
