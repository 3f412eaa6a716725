/** One string per object of the local API. */
import type { Kind, ObjectMeta } from '../model/objects.ts'

/** `Kind/namespace/name`, without namespace `Kind/name`; '/' occurs in none of the parts. */
export function objectKeyText(object: { readonly kind: Kind; readonly metadata: ObjectMeta }): string {
  const { namespace, name } = object.metadata
  return namespace === undefined ? `${object.kind}/${name}` : `${object.kind}/${namespace}/${name}`
}
