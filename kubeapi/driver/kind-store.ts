/**
 * The objects of one kind in layers: the user's object, the one that we applied, the implied one, and a status on top.
 * The cache shows the merged view. The memory and file drivers keep their state in it.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Condition, Kind, KubeObject, ObjectKinds, ObjectMeta } from '../../model/model.ts'
import { withBackendHealth } from '../../model/services/services.ts'
import { Listeners } from '../../reconcile/reconcile.ts'
import type { ObjectCache, ObjectChange } from '../kubeapi.ts'
import { type ObjectKey, objectKey } from './object-key.ts'

type Listener<T> = (change: ObjectChange<T> | undefined) => void

/** The ObjectCache that drivers fill: a map, listeners, and the sync state. */
export class LiveCache<T> implements ObjectCache<T> {
  readonly #objects = new Map<ObjectKey, T>()
  readonly #listeners = new Listeners<Parameters<Listener<T>>>()
  #synced = false
  #isUnserved = false
  /** Cached between changes: list() is called far more often than objects change. */
  #list: readonly T[] | undefined
  /** The sorted keys, kept since the first list(): most changes leave them as they are. */
  #order: ObjectKey[] | undefined

  get synced(): boolean {
    return this.#synced
  }

  get isUnserved(): boolean {
    return this.#isUnserved
  }

  /** Sorted by namespace and name, so that plans made from it are stable. */
  list(): readonly T[] {
    if (this.#list === undefined) {
      this.#order ??= [...this.#objects.keys()].sort()
      this.#list = Object.freeze(this.#order.map((key) => this.#objects.get(key) as T))
    }
    return this.#list
  }

  get(name: string, namespace?: string): T | undefined {
    return this.#objects.get(objectKey(name, namespace))
  }

  onChange(listener: Listener<T>): () => void {
    return this.#listeners.add(listener)
  }

  whenSynced(signal: AbortSignal): Promise<void> {
    if (signal.aborted) return Promise.reject(signal.reason as Error)
    if (this.#synced) return Promise.resolve()
    return new Promise((resolve, reject) => {
      const done = (): void => {
        stop()
        signal.removeEventListener('abort', onAbort)
      }
      const onAbort = (): void => {
        done()
        reject(signal.reason as Error)
      }
      const stop = this.onChange(() => {
        if (!this.#synced) return
        done()
        resolve()
      })
      signal.addEventListener('abort', onAbort, { once: true })
    })
  }

  /** For drivers: sets the object; undefined removes it. The caller has checked that it differs. */
  replace(key: ObjectKey, object: T | undefined): void {
    const previous = this.#objects.get(key)
    if (object === undefined && previous === undefined) return
    this.#list = undefined
    if (object === undefined) {
      this.#objects.delete(key)
      this.#order?.splice(placeOf(this.#order, key), 1)
      this.#report({ type: 'removed', object: previous as T })
    } else {
      this.#objects.set(key, object)
      if (previous === undefined) this.#order?.splice(placeOf(this.#order, key), 0, key)
      this.#report({ type: 'set', object, previous })
    }
  }

  /** For drivers: all existing objects have been read once. */
  markSynced(): void {
    if (this.#synced) return
    this.#synced = true
    this.#isUnserved = false
    this.#report(undefined)
  }

  /** For drivers: the server does not know the kind. Ignored once objects have been read. */
  markUnserved(): void {
    if (this.#synced || this.#isUnserved) return
    this.#isUnserved = true
    this.#report(undefined)
  }

  /** For drivers: the server knows the kind after all. */
  markServed(): void {
    if (!this.#isUnserved) return
    this.#isUnserved = false
    this.#report(undefined)
  }

  #report(change: ObjectChange<T> | undefined): void {
    this.#listeners.call(change)
  }
}

/** Returns the index of the first key that is not smaller. */
function placeOf(sorted: readonly ObjectKey[], key: ObjectKey): number {
  let [low, high] = [0, sorted.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((sorted[middle] ?? '') < key) low = middle + 1
    else high = middle
  }
  return low
}

export interface StoredStatus {
  /** The object that the status was written for: an object that is created again starts without a status. */
  readonly uid: string
  readonly status: unknown
}

export interface ObjectLayers {
  /** The user's own object, which takes precedence over ours. */
  user?: KubeObject | undefined
  /** Created by apply(). */
  ours?: KubeObject | undefined
  /** A namespace that exists because an object is in it. */
  implied?: KubeObject | undefined
  status?: StoredStatus | undefined
}

export class KindStore<K extends Kind> {
  readonly cache = new LiveCache<ObjectKinds[K]>()
  readonly #layers = new Map<ObjectKey, ObjectLayers>()
  readonly #views = new Map<ObjectKey, ObjectKinds[K]>()
  #open = false

  layers(key: ObjectKey): Readonly<ObjectLayers> {
    return this.#layers.get(key) ?? {}
  }

  keys(): ObjectKey[] {
    return [...this.#layers.keys()]
  }

  /** Returns the merged view, even before the cache shows it. */
  current(key: ObjectKey): ObjectKinds[K] | undefined {
    return this.#views.get(key)
  }

  /** Completes the first read: shows all objects in the cache and marks it synced. */
  open(): void {
    if (this.#open) return
    this.#open = true
    for (const [key, view] of this.#views) this.cache.replace(key, view)
    this.cache.markSynced()
  }

  /** Changes some layers; undefined clears a layer. Returns true if the merged view changed. */
  update(key: ObjectKey, change: ObjectLayers): boolean {
    const layers = { ...this.#layers.get(key), ...change }
    if (Object.values(layers).every((layer) => layer === undefined)) this.#layers.delete(key)
    else this.#layers.set(key, layers)
    const view = viewOf(layers) as ObjectKinds[K] | undefined
    if (isDeepStrictEqual(this.#views.get(key), view)) return false
    if (view === undefined) this.#views.delete(key)
    else this.#views.set(key, deepFreeze(view))
    if (this.#open) this.cache.replace(key, view)
    return true
  }
}

function viewOf(layers: ObjectLayers): KubeObject | undefined {
  const base = layers.user ?? layers.ours ?? layers.implied
  if (base === undefined || layers.status === undefined || layers.status.uid !== base.metadata.uid) return base
  const view = { ...base, status: layers.status.status } as KubeObject
  // Every part of a site sees the same readiness, since each reads slices from here.
  return view.kind === 'EndpointSlice' ? withBackendHealth(view) : view
}

type Loose = KubeObject & { readonly status?: unknown }

/** Returns the parts of an object that apply() owns: all except the status and the metadata that the driver sets. */
export function ownedParts(object: KubeObject): Record<string, unknown> {
  const { status: _status, metadata, ...rest } = object as Loose
  const { name, namespace, labels, annotations, ownerReferences } = metadata
  return {
    ...rest,
    metadata: {
      name,
      ...(namespace === undefined ? {} : { namespace }),
      labels: labels ?? {},
      annotations: annotations ?? {},
      ownerReferences: ownerReferences ?? [],
    },
  }
}

export function sameOwnedParts(a: KubeObject, b: KubeObject): boolean {
  return isDeepStrictEqual(plain(ownedParts(a)), plain(ownedParts(b)))
}

/** Returns all except metadata and status: a change of these parts is a new generation. */
export function specParts(object: KubeObject): Record<string, unknown> {
  const { status: _status, metadata: _metadata, ...rest } = object as Loose
  return rest
}

export interface CreationMetadata {
  readonly uid: string
  /** RFC 3339. */
  readonly creationTimestamp: string
}

/** Returns `object` without status, with the metadata that a server sets: from `previous`, or new from `creation`. */
export function withServerMetadata<T extends KubeObject>(
  object: T,
  previous: KubeObject | undefined,
  creation: () => CreationMetadata,
): T {
  const { status: _status, metadata, ...rest } = object as Loose
  const kept = previous?.metadata
  const born = kept?.uid === undefined ? creation() : undefined
  const { resourceVersion: _version, deletionTimestamp: _deleted, ...stated } = metadata
  const changed = previous !== undefined && !isDeepStrictEqual(plain(specParts(previous)), plain(rest))
  const filled: ObjectMeta = {
    ...stated,
    uid: kept?.uid ?? born?.uid ?? '',
    creationTimestamp: kept?.creationTimestamp ?? born?.creationTimestamp ?? '',
    generation: (kept?.generation ?? 1) + (changed ? 1 : 0),
  }
  return plain({ ...rest, metadata: filled }) as unknown as T
}

/** Returns the object with this condition in its status instead of the one of the same type. */
export function withCondition(object: KubeObject, condition: Condition): KubeObject {
  const status = (object as Loose).status as { readonly conditions?: readonly Condition[] } | undefined
  const others = (status?.conditions ?? []).filter(({ type }) => type !== condition.type)
  return { ...object, status: { ...status, conditions: [...others, condition] } } as KubeObject
}

/** Returns the value as JSON represents it: fields that are undefined are absent. */
export function plain<T>(value: T): T {
  return value === undefined ? value : (JSON.parse(JSON.stringify(value)) as T)
}

/** Returns the value itself, deeply frozen. */
export function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  Object.freeze(value)
  for (const part of Object.values(value)) deepFreeze(part)
  return value
}
