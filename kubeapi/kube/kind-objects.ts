/**
 * The objects of one kind as last received, from lists, watches and the answers to our own writes; any of them may be
 * older than the known state. Besides each slim object it keeps the version, whether the object is ours, and the
 * fingerprint of the parts that we own.
 */
import { isDeepStrictEqual } from 'node:util'
import {
  APP_MANAGED_BY_SEALANE,
  type Kind,
  type KubeObject,
  LABEL_APP_MANAGED_BY,
  type ObjectKinds,
} from '../../model/model.ts'
import { LiveCache, type ObjectKey, deepFreeze, objectKey } from '../driver/driver.ts'
import { KIND_PLACES } from './kinds.ts'
import { type FieldSet, type ManagedFieldsEntry, appliedFields, fingerprint, ownedPart } from './write/owned-fields.ts'
import { type RawObject, type Slimmer, slimObject } from '../../model/schemas/schemas.ts'

export interface CachedObject {
  readonly uid: string
  /** resourceVersion: a number that increases within a kind (KEP-5504); NaN if the server uses another format. */
  readonly version: number
  readonly ours: boolean
  /** fingerprint() of the parts that we own, and of those that we own of the status; undefined if there are none. */
  readonly applied: string | undefined
  readonly status: string | undefined
}

export class KindObjects<K extends Kind> {
  readonly kind: K
  readonly cache = new LiveCache<ObjectKinds[K]>()
  readonly #cached = new Map<ObjectKey, CachedObject>()
  /** uid of objects that we removed and that the watch has not reported as removed yet. */
  readonly #removed = new Map<ObjectKey, string>()
  /** Objects that our own writes changed since the pending list began; empty while there is none. */
  readonly #touched = new Set<ObjectKey>()
  readonly #slimmer: Slimmer | undefined
  #listing = false

  /** `slimmer`: what is left out besides what slimObject() leaves out. */
  constructor(kind: K, slimmer?: Slimmer) {
    this.kind = kind
    this.#slimmer = slimmer
  }

  /** The object as the cache keeps it. */
  slim(raw: RawObject): KubeObject {
    const object = slimObject(this.kind, KIND_PLACES[this.kind].apiVersion, raw)
    return this.#slimmer?.(object) ?? object
  }

  get size(): number {
    return this.#cached.size
  }

  holding(key: ObjectKey): CachedObject | undefined {
    return this.#cached.get(key)
  }

  /**
   * Takes an object from the watch or from the answer to a write, unless a newer version is known. Returns what it
   * stored.
   */
  take(raw: RawObject): CachedObject | undefined {
    const key = rawKey(raw)
    const known = this.#cached.get(key)
    const { uid = '', resourceVersion } = raw.metadata
    if (this.#removed.get(key) === uid) return undefined
    if (known !== undefined && Number(resourceVersion) <= known.version) return undefined
    const holding = cachedObject(this.kind, raw)
    this.#store(key, holding, this.slim(raw))
    return holding
  }

  /** Takes the answer to one of our own writes. */
  takeOwn(raw: RawObject): CachedObject | undefined {
    if (this.#listing) this.#touched.add(rawKey(raw))
    return this.take(raw)
  }

  /** Handles a removal that the watch reports; a newer object with the same name stays. */
  drop(raw: RawObject): void {
    const key = rawKey(raw)
    const { uid = '', resourceVersion } = raw.metadata
    if (this.#removed.get(key) === uid) this.#removed.delete(key)
    const known = this.#cached.get(key)
    if (known === undefined || (known.uid !== uid && known.version > Number(resourceVersion))) return
    this.#vanish(key)
  }

  /** Handles our own removal: pending events must not restore the object. */
  dropOwn(key: ObjectKey, uid: string): void {
    if (this.#cached.get(key)?.uid !== uid) return
    if (this.#listing) this.#touched.add(key)
    this.#removed.set(key, uid)
    this.#forget(key)
  }

  beginList(): ListUnderWay<K> {
    this.#touched.clear()
    this.#listing = true
    return new ListUnderWay(this)
  }

  /** Applies a complete list, except for objects that we wrote while it was read. */
  finishList(list: ListUnderWay<K>): void {
    for (const [key, { holding, object }] of list.items) {
      if (this.#removed.get(key) === holding.uid) continue
      const known = this.#cached.get(key)
      if (this.#touched.has(key) && known !== undefined && known.version >= holding.version) continue
      this.#store(key, holding, object)
    }
    for (const [key] of [...this.#cached]) if (!list.items.has(key) && !this.#touched.has(key)) this.#vanish(key)
    // Objects that were removed before the list began cannot appear any more; those removed since still can.
    for (const key of [...this.#removed.keys()]) if (!this.#touched.has(key)) this.#removed.delete(key)
    this.#touched.clear()
    this.#listing = false
    this.cache.markSynced()
  }

  #store(key: ObjectKey, holding: CachedObject, object: KubeObject): void {
    this.#cached.set(key, holding)
    const present = this.cache.get(object.metadata.name, object.metadata.namespace)
    if (isDeepStrictEqual(present, object)) return
    this.cache.replace(key, deepFreeze(object) as ObjectKinds[K])
  }

  /**
   * Handles a removal by another client. A cluster leaves by setting the phase of its Membership first, and then every
   * node cleans up. So a Membership that disappears (because its CRD was deleted, for example) stays in the cache until
   * the agent has written it again.
   */
  #vanish(key: ObjectKey): void {
    const joined = this.cache.list().some((one) => one.kind === 'Membership' && one.spec.phase === 'joined')
    if (joined) this.#cached.delete(key)
    else this.#forget(key)
  }

  #forget(key: ObjectKey): void {
    this.#cached.delete(key)
    this.cache.replace(key, undefined)
  }
}

/** A list that is not complete yet, and that the cache does not show. */
export class ListUnderWay<K extends Kind> {
  readonly items = new Map<ObjectKey, { readonly holding: CachedObject; readonly object: KubeObject }>()
  readonly #objects: Pick<KindObjects<K>, 'kind' | 'slim'>

  constructor(objects: Pick<KindObjects<K>, 'kind' | 'slim'>) {
    this.#objects = objects
  }

  add(raw: RawObject): void {
    const { kind } = this.#objects
    this.items.set(rawKey(raw), { holding: cachedObject(kind, raw), object: this.#objects.slim(raw) })
  }
}

export function cachedObject(kind: Kind, raw: RawObject): CachedObject {
  const { apiVersion } = KIND_PLACES[kind]
  const entries = raw.metadata.managedFields as readonly ManagedFieldsEntry[] | undefined
  const applied = appliedFields(entries, apiVersion)
  const status = appliedFields(entries, apiVersion, 'status')
  return {
    uid: raw.metadata.uid ?? '',
    version: Number(raw.metadata.resourceVersion),
    ours: isOurs(apiVersion, raw, applied),
    applied: applied === undefined ? undefined : fingerprint(ownedPart(raw, applied)),
    status: status === undefined ? undefined : fingerprint(ownedPart(raw, status)),
  }
}

/**
 * Decided by label. If another client removed the label, the object is ours if its group is ours, or if we own more
 * than metadata.
 */
function isOurs(apiVersion: string, raw: RawObject, applied: FieldSet | undefined): boolean {
  if (raw.metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE) return true
  if (apiVersion.startsWith('sealane.io/')) return true
  return Object.keys(applied ?? {}).some((field) => field !== 'f:metadata')
}

function rawKey({ metadata }: RawObject): ObjectKey {
  return objectKey(metadata.name, metadata.namespace)
}
