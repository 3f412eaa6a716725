/**
 * One kind's objects as last received, from lists, watches and the answers to our own writes: each may be older than
 * what is known already. Beside the slim object, a few words about each: its version, whether it is ours, and the
 * fingerprint of what we own of it.
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
import { type RawObject, slimObject } from '../../model/schemas/schemas.ts'

export interface CachedObject {
  readonly uid: string
  /** resourceVersion: a number that grows within a kind (KEP-5504); not a number where the server says otherwise. */
  readonly version: number
  readonly ours: boolean
  /** fingerprint() of what we own, and of what we own of the status; undefined when nothing. */
  readonly applied: string | undefined
  readonly status: string | undefined
}

export class KindObjects<K extends Kind> {
  readonly kind: K
  readonly cache = new LiveCache<ObjectKinds[K]>()
  readonly #cached = new Map<ObjectKey, CachedObject>()
  /** uid of what we removed while the watch has not shown it yet. */
  readonly #removed = new Map<ObjectKey, string>()
  /** What our own writes changed since the list under way began; nothing while there is none. */
  readonly #touched = new Set<ObjectKey>()
  #listing = false

  constructor(kind: K) {
    this.kind = kind
  }

  get size(): number {
    return this.#cached.size
  }

  holding(key: ObjectKey): CachedObject | undefined {
    return this.#cached.get(key)
  }

  /** From the watch, or the answer to a write: counts unless something newer is known. Gives what it took. */
  take(raw: RawObject): CachedObject | undefined {
    const key = rawKey(raw)
    const known = this.#cached.get(key)
    const { uid = '', resourceVersion } = raw.metadata
    if (this.#removed.get(key) === uid) return undefined
    if (known !== undefined && Number(resourceVersion) <= known.version) return undefined
    const holding = cachedObject(this.kind, raw)
    this.#store(key, holding, slimObject(this.kind, KIND_PLACES[this.kind].apiVersion, raw))
    return holding
  }

  /** The answer to a write of ours. */
  takeOwn(raw: RawObject): CachedObject | undefined {
    if (this.#listing) this.#touched.add(rawKey(raw))
    return this.take(raw)
  }

  /** The watch says that it is gone; a newer object of the same name stays. */
  drop(raw: RawObject): void {
    const key = rawKey(raw)
    const { uid = '', resourceVersion } = raw.metadata
    if (this.#removed.get(key) === uid) this.#removed.delete(key)
    const known = this.#cached.get(key)
    if (known === undefined || (known.uid !== uid && known.version > Number(resourceVersion))) return
    this.#vanish(key)
  }

  /** We removed it: it must not come back from events that are still on their way. */
  dropOwn(key: ObjectKey, uid: string): void {
    if (this.#cached.get(key)?.uid !== uid) return
    if (this.#listing) this.#touched.add(key)
    this.#removed.set(key, uid)
    this.#forget(key)
  }

  beginList(): ListUnderWay<K> {
    this.#touched.clear()
    this.#listing = true
    return new ListUnderWay(this.kind)
  }

  /** A complete list is the truth, but for what we wrote while it was read. */
  finishList(list: ListUnderWay<K>): void {
    for (const [key, { holding, object }] of list.items) {
      if (this.#removed.get(key) === holding.uid) continue
      const known = this.#cached.get(key)
      if (this.#touched.has(key) && known !== undefined && known.version >= holding.version) continue
      this.#store(key, holding, object)
    }
    for (const [key] of [...this.#cached]) if (!list.items.has(key) && !this.#touched.has(key)) this.#vanish(key)
    // What was removed before the list began cannot come any more; what was removed since still can.
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
   * Somebody took it away. A membership ends by saying so first, and every node takes itself out then: one that
   * vanishes (its CRD was deleted, say) goes on being known until the agent has written it again.
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

/** A list that is not complete yet. Nobody sees it. */
export class ListUnderWay<K extends Kind> {
  readonly items = new Map<ObjectKey, { readonly holding: CachedObject; readonly object: KubeObject }>()
  readonly #kind: K

  constructor(kind: K) {
    this.#kind = kind
  }

  add(raw: RawObject): void {
    const object = slimObject(this.#kind, KIND_PLACES[this.#kind].apiVersion, raw)
    this.items.set(rawKey(raw), { holding: cachedObject(this.#kind, raw), object })
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

/** By label; without it (someone took it off) when the group is ours, or when more than metadata is. */
function isOurs(apiVersion: string, raw: RawObject, applied: FieldSet | undefined): boolean {
  if (raw.metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE) return true
  if (apiVersion.startsWith('sealane.io/')) return true
  return Object.keys(applied ?? {}).some((field) => field !== 'f:metadata')
}

function rawKey({ metadata }: RawObject): ObjectKey {
  return objectKey(metadata.name, metadata.namespace)
}
