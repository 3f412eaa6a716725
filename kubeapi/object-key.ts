/** How objects are addressed, and what every object must have before a driver takes it. */
import { CLUSTER_SCOPED, type Kind, type KubeObject } from '../model/objects.ts'
import { isDnsLabel, isObjectName } from '../model/ids.ts'
import { ClusterApiError } from './cluster-api.ts'

/** `namespace/name`, or `_/name` for cluster-scoped kinds: '_' is no legal namespace. */
export type ObjectKey = string

export const NO_NAMESPACE = '_'

export function objectKey(name: string, namespace?: string): ObjectKey {
  return `${namespace ?? NO_NAMESPACE}/${name}`
}

export function keyOf(object: KubeObject): ObjectKey {
  return objectKey(object.metadata.name, object.metadata.namespace)
}

/** `Service shop/web` or `Node gw`, for messages. */
export function objectTitle(kind: string, name: string, namespace?: string): string {
  return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}

/** Throws ClusterApiError Invalid unless name and namespace fit the kind. They become file names: no '/', no '..'. */
export function checkAddress(kind: Kind, name: string, namespace?: string): void {
  const title = objectTitle(kind, name, namespace)
  if (!isObjectName(name)) {
    throw new ClusterApiError(
      'Invalid',
      `${title}: metadata.name ${JSON.stringify(name)}: expected an RFC 1123 subdomain`,
    )
  }
  if (CLUSTER_SCOPED.has(kind)) {
    if (namespace !== undefined) {
      throw new ClusterApiError(
        'Invalid',
        `${title}: metadata.namespace ${JSON.stringify(namespace)}: expected none, the kind is cluster-scoped`,
      )
    }
  } else if (namespace === undefined || !isDnsLabel(namespace)) {
    throw new ClusterApiError(
      'Invalid',
      `${title}: metadata.namespace ${JSON.stringify(namespace ?? '')}: expected an RFC 1123 label`,
    )
  }
}
