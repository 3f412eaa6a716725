/** Object keys, and the checks that every object must pass before a driver accepts it. */
import {
  CLUSTER_SCOPED,
  type Kind,
  type KubeObject,
  type Namespace,
  isDnsLabel,
  isObjectName,
} from '../../model/model.ts'
import { ClusterApiError } from '../kubeapi.ts'

/** `namespace/name`, or `_/name` for cluster-scoped kinds: '_' is not a valid namespace. */
export type ObjectKey = string

export const NO_NAMESPACE = '_'

export function objectKey(name: string, namespace?: string): ObjectKey {
  return `${namespace ?? NO_NAMESPACE}/${name}`
}

export function keyOf(object: KubeObject): ObjectKey {
  return objectKey(object.metadata.name, object.metadata.namespace)
}

/** Formats as `Service shop/web` or `Node gw`, for messages. */
export function objectTitle(kind: string, name: string, namespace?: string): string {
  return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}

/**
 * Throws ClusterApiError Invalid unless name and namespace fit the kind. They become file names, so they must not
 * contain '/' or '..'.
 */
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

/** Called with the implied Namespace of a key, or undefined if it is no longer implied. */
type Imply = (key: ObjectKey, object: Namespace | undefined) => void

/**
 * A namespace exists while there is a Namespace object, or while an object of the user is in it. This class tracks the
 * second case.
 */
export class ResidentNamespaces {
  readonly #residents = new Map<string, Set<string>>()
  readonly #imply: Imply

  constructor(imply: Imply) {
    this.#imply = imply
  }

  /** Records that an object of the user exists or no longer exists. */
  note(kind: Kind, key: ObjectKey, exists: boolean): void {
    if (CLUSTER_SCOPED.has(kind)) return
    const namespace = key.slice(0, key.indexOf('/'))
    const residents = this.#residents.get(namespace) ?? new Set()
    const before = residents.size > 0
    if (exists) residents.add(`${kind} ${key}`)
    else residents.delete(`${kind} ${key}`)
    if (residents.size > 0) this.#residents.set(namespace, residents)
    else this.#residents.delete(namespace)
    if (residents.size > 0 !== before) this.#report(namespace)
  }

  /** Calls back for every implied namespace. */
  reportAll(): void {
    for (const namespace of this.#residents.keys()) this.#report(namespace)
  }

  #report(namespace: string): void {
    const lived = (this.#residents.get(namespace)?.size ?? 0) > 0
    const object: Namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } }
    this.#imply(objectKey(namespace), lived ? object : undefined)
  }
}
