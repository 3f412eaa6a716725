/** A namespace exists while a Namespace object does, or while anything of the user lives in it: the second part. */
import { CLUSTER_SCOPED, type Kind, type Namespace } from '../model/objects.ts'
import { type ObjectKey, objectKey } from './object-key.ts'

/** Called with what is implied for a namespace's key now: an object, or nothing any more. */
export type Imply = (key: ObjectKey, object: Namespace | undefined) => void

export class ResidentNamespaces {
  readonly #residents = new Map<string, Set<string>>()
  readonly #imply: Imply

  constructor(imply: Imply) {
    this.#imply = imply
  }

  /** One of the user's objects exists, or does not any more. */
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

  /** Calls with everything that is implied now. */
  reportAll(): void {
    for (const namespace of this.#residents.keys()) this.#report(namespace)
  }

  #report(namespace: string): void {
    const lived = (this.#residents.get(namespace)?.size ?? 0) > 0
    const object: Namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } }
    this.#imply(objectKey(namespace), lived ? object : undefined)
  }
}
