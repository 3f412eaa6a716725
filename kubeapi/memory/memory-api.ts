/**
 * The ClusterApi without a cluster: for tests and for single-process use. It behaves like the file driver and passes
 * the same compliance suite. put() and drop() stand for the user.
 */
import { randomUUID } from 'node:crypto'
import type { Condition, Kind, KubeObject, ObjectKinds } from '../../model/model.ts'
import { type Clock, SystemClock } from '../../reconcile/reconcile.ts'
import { type ClusterApi, ClusterApiError, type ObjectCache, type ObjectEvent, type ObjectName } from '../kubeapi.ts'
import {
  type CreationMetadata,
  EventFilter,
  KindStore,
  ResidentNamespaces,
  checkAddress,
  keyOf,
  objectKey,
  objectTitle,
  plain,
  sameOwnedParts,
  withCondition,
  withServerMetadata,
} from '../driver/driver.ts'

export interface MemoryApiInit {
  readonly clock?: Clock
  /** If true, caches stay unsynced and empty until release(). */
  readonly hold?: boolean
}

export interface MemoryWrite {
  readonly verb: 'apply' | 'applyStatus' | 'remove'
  readonly kind: Kind
  readonly name: string
  readonly namespace?: string
}

/** The number of events that report() keeps; older ones are dropped. */
const MAX_EVENTS = 1000

export class MemoryApi implements ClusterApi {
  /** Every call that changed something, oldest first. Tests may clear it. */
  readonly writes: MemoryWrite[] = []
  /** Every event that report() passed, oldest first. Tests may clear it. */
  readonly events: ObjectEvent[] = []
  /** While set, every write and every read() fails with it. */
  failure: ClusterApiError | undefined

  readonly #clock: Clock
  readonly #stores = new Map<Kind, KindStore<Kind>>()
  /** First reads that `hold` delays. */
  readonly #waiting: (() => void)[] = []
  readonly #eventFilter: EventFilter
  #held: boolean
  #closed = false
  readonly #shown = new Set<Kind>()
  readonly #residents = new ResidentNamespaces((key, implied) => this.#store('Namespace').update(key, { implied }))

  constructor(init: MemoryApiInit = {}) {
    this.#clock = init.clock ?? new SystemClock()
    this.#eventFilter = new EventFilter(this.#clock)
    this.#held = init.hold ?? false
  }

  cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]> {
    const store = this.#store(kind)
    if (!this.#shown.has(kind)) {
      this.#shown.add(kind)
      // Deferred, so that the caller can register a listener before the first read.
      queueMicrotask(() => this.#sync(() => store.open()))
    }
    return store.cache as unknown as ObjectCache<ObjectKinds[K]>
  }

  /** Ends `hold`: all caches sync. */
  release(): void {
    this.#held = false
    for (const sync of this.#waiting.splice(0)) sync()
  }

  /** Acts as the user: creates or replaces an object. Metadata that a server sets may be omitted. */
  put(object: KubeObject): void {
    const store = this.#store(object.kind)
    const key = keyOf(object)
    checkAddress(object.kind, object.metadata.name, object.metadata.namespace)
    const { uid, creationTimestamp } = object.metadata
    const existing = store.layers(key).user
    const previous = uid === undefined || uid === existing?.metadata.uid ? existing : undefined
    const filled = withServerMetadata(object, previous, () => this.#creation(object))
    const metadata = { ...filled.metadata, ...(creationTimestamp === undefined ? {} : { creationTimestamp }) }
    const status = (object as { status?: unknown }).status
    const user = {
      ...filled,
      metadata,
      ...(status === undefined ? {} : { status: plain(status) }),
    } as KubeObject
    store.update(key, status === undefined ? { user } : { user, status: undefined })
    this.#residents.note(object.kind, key, true)
  }

  /** Acts as the user: removes an object that put() created. */
  drop(kind: Kind, name: string, namespace?: string): void {
    const store = this.#store(kind)
    const key = objectKey(name, namespace)
    if (store.layers(key).user === undefined) return
    store.update(key, { user: undefined })
    this.#residents.note(kind, key, false)
  }

  /** Returns what is stored, synced or not. */
  get<K extends Kind>(kind: K, name: string, namespace?: string): ObjectKinds[K] | undefined {
    return this.#store(kind).current(objectKey(name, namespace)) as ObjectKinds[K] | undefined
  }

  asApplied<T extends KubeObject>(object: T): T {
    return object
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- the interface is asynchronous
  async apply(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    this.#checkWritable(kind, metadata.name, metadata.namespace, signal)
    const store = this.#store(kind)
    const { user, ours } = store.layers(keyOf(object))
    if (user !== undefined) {
      throw new ClusterApiError('Forbidden', `${titleOf(object)} is the user's own and is not overwritten`)
    }
    if (ours !== undefined && sameOwnedParts(ours, object)) return
    store.update(keyOf(object), { ours: withServerMetadata(object, ours, () => this.#creation(object)) })
    this.#log('apply', kind, metadata.name, metadata.namespace)
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- the interface is asynchronous
  async applyStatus(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    this.#checkWritable(kind, metadata.name, metadata.namespace, signal)
    const store = this.#store(kind)
    const current = store.current(keyOf(object))
    if (current === undefined) throw new ClusterApiError('NotFound', `${titleOf(object)} does not exist`)
    const status = plain((object as { status?: unknown }).status)
    if (store.update(keyOf(object), { status: { uid: current.metadata.uid ?? '', status } })) {
      this.#log('applyStatus', kind, metadata.name, metadata.namespace)
    }
  }

  async setCondition({ kind, name, namespace }: ObjectName, condition: Condition, signal?: AbortSignal): Promise<void> {
    const current = this.get(kind, name, namespace)
    if (current === undefined)
      throw new ClusterApiError('NotFound', `${objectTitle(kind, name, namespace)} does not exist`)
    await this.applyStatus(withCondition(current, condition), signal)
  }

  /** Fails with `failure` while it is set, as writes do. */
  // eslint-disable-next-line @typescript-eslint/require-await -- the interface is asynchronous
  async read<K extends Kind>(
    kind: K,
    name: string,
    namespace?: string,
    signal?: AbortSignal,
  ): Promise<ObjectKinds[K] | undefined> {
    this.#checkWritable(kind, name, namespace, signal)
    return this.get(kind, name, namespace)
  }

  // eslint-disable-next-line @typescript-eslint/require-await -- the interface is asynchronous
  async remove(kind: Kind, name: string, namespace?: string, signal?: AbortSignal): Promise<void> {
    this.#checkWritable(kind, name, namespace, signal)
    const store = this.#store(kind)
    const key = objectKey(name, namespace)
    const layers = store.layers(key)
    if (layers.user !== undefined) {
      throw new ClusterApiError(
        'Forbidden',
        `${objectTitle(kind, name, namespace)} is the user's own and is not removed`,
      )
    }
    if (layers.ours === undefined) return
    store.update(key, { ours: undefined, status: undefined })
    this.#log('remove', kind, name, namespace)
  }

  report(event: ObjectEvent): void {
    const passed = this.#closed ? undefined : this.#eventFilter.pass(event)
    if (passed === undefined) return
    this.events.push(passed)
    if (this.events.length > MAX_EVENTS) this.events.shift()
  }

  close(): Promise<void> {
    this.#closed = true
    return Promise.resolve()
  }

  #store(kind: Kind): KindStore<Kind> {
    let store = this.#stores.get(kind)
    if (store === undefined) {
      store = new KindStore<Kind>()
      this.#stores.set(kind, store)
    }
    return store
  }

  #sync(open: () => void): void {
    if (this.#held) this.#waiting.push(open)
    else open()
  }

  #checkWritable(kind: Kind, name: string, namespace?: string, signal?: AbortSignal): void {
    signal?.throwIfAborted()
    if (this.#closed) throw new ClusterApiError('Unavailable', 'the cluster API is closed')
    if (this.failure !== undefined) throw this.failure
    checkAddress(kind, name, namespace)
  }

  #creation(object: { readonly metadata: KubeObject['metadata'] }): CreationMetadata {
    const { uid, creationTimestamp } = object.metadata
    return {
      uid: uid ?? randomUUID(),
      creationTimestamp: creationTimestamp ?? new Date(this.#clock.now()).toISOString().replace(/\.\d+Z$/, 'Z'),
    }
  }

  #log(verb: MemoryWrite['verb'], kind: Kind, name: string, namespace?: string): void {
    this.writes.push({ verb, kind, name, ...(namespace === undefined ? {} : { namespace }) })
  }
}

function titleOf(object: { readonly kind: Kind; readonly metadata: KubeObject['metadata'] }): string {
  return objectTitle(object.kind, object.metadata.name, object.metadata.namespace)
}
