/**
 * The ClusterApi of a node of a plain site that does not see the folder of the site: the hub has the objects, and this
 * driver follows them over one connection. What was last known stays while no hub can be reached, also across a restart
 * if there is a folder for it; nothing is removed before the hub has given a complete list.
 */
import { isDeepStrictEqual } from 'node:util'
import type { Condition, Kind, KubeObject, ObjectKinds } from '../../model/model.ts'
import { Backoff, type Clock, WriteQueue, orAborted } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import {
  EventFilter,
  LiveCache,
  type ObjectKey,
  checkAddress,
  deepFreeze,
  keyOf,
  objectKey,
  objectTitle,
  withCondition,
} from '../driver/driver.ts'
import {
  type ClusterApi,
  ClusterApiError,
  type LeaseStore,
  type ObjectCache,
  type ObjectEvent,
  type ObjectName,
  type StoredLease,
} from '../kubeapi.ts'
import type { HubConnection } from './hub-connection.ts'
import { KnownObjects } from './known-objects.ts'
import type { HubRequest, Seen, WatchLine } from './wire.ts'

export interface RemoteApiDeps {
  readonly clock: Clock
  readonly logger: Logger
  readonly connection: HubConnection
}

export interface RemoteApiInit {
  /** A folder of this node for what it knows of the site. If absent, a start needs the hub. */
  readonly known?: string
  /** How long a start waits for the hub before it continues from what this node knew. Default: 5 s. */
  readonly waitMs?: number
}

const WAIT_MS = 5000
const RETRY = { minMs: 200, maxMs: 5000 }
const MAX_WRITES = 16
/** A watch shows a write at once, unless its connection breaks: then it is shown later. */
const SHOWN_MS = 5000

export class RemoteApi implements ClusterApi {
  readonly leases: LeaseStore
  readonly #deps: RemoteApiDeps
  readonly #init: RemoteApiInit
  readonly #mirrors = new Map<Kind, KindMirror>()
  readonly #writes = new WriteQueue(MAX_WRITES)
  readonly #events: EventFilter
  readonly #known: KnownObjects | undefined
  readonly #stop = new AbortController()
  readonly #following: Promise<void>[] = []

  constructor(deps: RemoteApiDeps, init: RemoteApiInit = {}) {
    this.#deps = deps
    this.#init = init
    this.#events = new EventFilter(deps.clock)
    this.#known = init.known === undefined ? undefined : new KnownObjects(deps, { folder: init.known })
    this.leases = {
      read: async (name, signal) => (await this.#ask({ verb: 'readLease', name }, signal)) as StoredLease | undefined,
      write: async (lease, signal) => (await this.#ask({ verb: 'writeLease', lease }, signal)) as StoredLease,
    }
  }

  cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]> {
    return this.#mirror(kind).cache as unknown as ObjectCache<ObjectKinds[K]>
  }

  asApplied<T extends KubeObject>(object: T): T {
    return object
  }

  async apply(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    await this.#write(kind, metadata.name, metadata.namespace, { verb: 'apply', object }, signal)
  }

  async applyStatus(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    await this.#write(kind, metadata.name, metadata.namespace, { verb: 'applyStatus', object }, signal)
  }

  async setCondition({ kind, name, namespace }: ObjectName, condition: Condition, signal?: AbortSignal): Promise<void> {
    const current = await this.read(kind, name, namespace, signal)
    if (current === undefined)
      throw new ClusterApiError('NotFound', `${objectTitle(kind, name, namespace)} does not exist`)
    await this.applyStatus(withCondition(current, condition), signal)
  }

  async read<K extends Kind>(
    kind: K,
    name: string,
    namespace?: string,
    signal?: AbortSignal,
  ): Promise<ObjectKinds[K] | undefined> {
    this.#checkOpen(signal)
    checkAddress(kind, name, namespace)
    const place = { kind, name, ...(namespace === undefined ? {} : { namespace }) }
    return (await this.#ask({ verb: 'read', ...place }, signal)) as ObjectKinds[K] | undefined
  }

  async remove(kind: Kind, name: string, namespace?: string, signal?: AbortSignal): Promise<void> {
    const place = { kind, name, ...(namespace === undefined ? {} : { namespace }) }
    await this.#write(kind, name, namespace, { verb: 'remove', ...place }, signal)
  }

  /** Writes events to the log of this node, as the driver on files does. */
  report(event: ObjectEvent): void {
    const passed = this.#stop.signal.aborted ? undefined : this.#events.pass(event)
    if (passed === undefined) return
    const { regarding, type, reason, note } = passed
    const text = `${objectTitle(regarding.kind, regarding.name, regarding.namespace)}: ${note}`
    if (type === 'Warning') this.#deps.logger.warn(text, { reason })
    else this.#deps.logger.info(text, { reason })
  }

  async close(): Promise<void> {
    this.#stop.abort(new ClusterApiError('Unavailable', 'the cluster API is closed'))
    await this.#writes.settled()
    this.#deps.connection.close()
    await Promise.all(this.#following)
    await this.#known?.close()
  }

  #mirror(kind: Kind): KindMirror {
    const known = this.#mirrors.get(kind)
    if (known !== undefined) return known
    const mirror = new KindMirror()
    this.#mirrors.set(kind, mirror)
    const save = this.#known
    if (save !== undefined)
      mirror.cache.onChange(() => {
        // What was read from the disk is not written there again.
        if (mirror.isHeard) save.save(kind, () => mirror.cache.list())
      })
    this.#following.push(this.#follow(kind, mirror))
    return mirror
  }

  async #follow(kind: Kind, mirror: KindMirror): Promise<void> {
    const { clock, connection, logger } = this.#deps
    const { signal } = this.#stop
    const cancel = clock.setTimer(this.#init.waitMs ?? WAIT_MS, () => void this.#recall(kind, mirror))
    const backoff = new Backoff(clock, RETRY)
    let refused = ''
    while (!signal.aborted) {
      try {
        mirror.begin()
        await connection.watch(kind, (line) => {
          if (mirror.line(line)) backoff.reset()
        })
      } catch (error) {
        const why = error instanceof ClusterApiError && error.code !== 'Unavailable' ? error.message : ''
        if (why !== '' && why !== refused)
          logger.warn(`the hub refuses this node: ${why}`, { reason: 'HubRefused', kind })
        refused = why
      }
      mirror.ended()
      await clock.sleep(backoff.next(), signal).catch(() => undefined)
    }
    cancel()
  }

  /** Shows what this node knew, for a start while no hub answers. */
  async #recall(kind: Kind, mirror: KindMirror): Promise<void> {
    const objects = await this.#known?.load(kind)
    if (objects === undefined || mirror.isHeard || this.#stop.signal.aborted) return
    this.#deps.logger.warn('no hub answers: this node continues from what it knew of its site', {
      reason: 'HubUnreachable',
      kind,
      objects: objects.length,
    })
    mirror.recall(objects)
  }

  async #write(
    kind: Kind,
    name: string,
    namespace: string | undefined,
    request: HubRequest,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    this.#checkOpen(signal)
    checkAddress(kind, name, namespace)
    const key = objectKey(name, namespace)
    // Opened first: whoever writes an object finds it in the cache afterwards.
    const mirror = this.#mirror(kind)
    const seen = await this.#writes.run(`${kind} ${key}`, async () => {
      this.#checkOpen(signal)
      return (await this.#deps.connection.ask(request, signal)).seen
    })
    if (seen !== undefined) await mirror.whenShown(seen, this.#deps.clock)
  }

  async #ask(request: HubRequest, signal?: AbortSignal): Promise<unknown> {
    this.#checkOpen(signal)
    return (await this.#deps.connection.ask(request, signal)).value
  }

  #checkOpen(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted()
    this.#stop.signal.throwIfAborted()
  }
}

/** The cache of one kind, and how far the watch that fills it has come. */
class KindMirror {
  readonly cache = new LiveCache<KubeObject>()
  readonly #keys = new Set<ObjectKey>()
  readonly #waiting = new Set<() => void>()
  /** The complete list that a new watch begins with, as far as it has arrived; undefined after it. */
  #listing: Map<ObjectKey, KubeObject> | undefined
  #seen: Seen | undefined
  #isHeard = false

  /** Whether a hub has given a complete list to this process. */
  get isHeard(): boolean {
    return this.#isHeard
  }

  begin(): void {
    this.#listing = new Map()
    this.#seen = undefined
  }

  /** True if from here on everything is shown. */
  line(line: WatchLine): boolean {
    if ('rev' in line) {
      this.#complete()
      this.#seen = line
      this.#wake()
      return true
    }
    const listing = this.#listing
    if ('set' in line) {
      const key = keyOf(line.set)
      if (listing === undefined) this.#show(key, line.set)
      else listing.set(key, line.set)
    } else {
      const key = objectKey(line.removed.name, line.removed.namespace)
      if (listing === undefined) this.#hide(key)
      else listing.delete(key)
    }
    return false
  }

  ended(): void {
    this.#listing = undefined
    this.#seen = undefined
    this.#wake()
  }

  recall(objects: readonly KubeObject[]): void {
    for (const object of objects) this.#show(keyOf(object), object)
    this.cache.markSynced()
  }

  /** Resolves once the cache shows this revision, or when the watch has ended: then it will show it later. */
  async whenShown(wanted: Seen, clock: Clock): Promise<void> {
    const isOver = (): boolean => {
      if (this.#seen === undefined) return this.#listing === undefined
      return this.#seen.epoch !== wanted.epoch || this.#seen.rev >= wanted.rev
    }
    if (isOver()) return
    const late = new AbortController()
    const cancel = clock.setTimer(SHOWN_MS, () => late.abort())
    const { promise, resolve } = Promise.withResolvers<undefined>()
    const look = (): void => {
      if (isOver()) resolve(undefined)
    }
    this.#waiting.add(look)
    await orAborted(promise, late.signal).catch(() => undefined)
    this.#waiting.delete(look)
    cancel()
  }

  #complete(): void {
    const listing = this.#listing
    if (listing === undefined) return
    this.#listing = undefined
    this.#isHeard = true
    for (const [key, object] of listing) this.#show(key, object)
    for (const key of [...this.#keys]) if (!listing.has(key)) this.#hide(key)
    this.cache.markSynced()
  }

  #show(key: ObjectKey, object: KubeObject): void {
    const cut = key.indexOf('/')
    const present = this.cache.get(key.slice(cut + 1), object.metadata.namespace)
    this.#keys.add(key)
    if (!isDeepStrictEqual(present, object)) this.cache.replace(key, deepFreeze(object))
  }

  #hide(key: ObjectKey): void {
    this.#keys.delete(key)
    this.cache.replace(key, undefined)
  }

  #wake(): void {
    for (const look of this.#waiting) look()
  }
}
