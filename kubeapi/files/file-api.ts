/**
 * The ClusterApi of a site without Kubernetes: a folder of the user's YAML and a state folder. Several processes share
 * the folders, and each watches them by itself; there is no server.
 */
import { randomUUID } from 'node:crypto'
import { join, resolve } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import type { Condition, Kind, KubeObject, ObjectKinds } from '../../model/model.ts'
import { type Clock, WriteQueue } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import {
  type ClusterApi,
  ClusterApiError,
  type LeaseStore,
  type ObjectCache,
  type ObjectEvent,
  type ObjectName,
} from '../kubeapi.ts'
import {
  type CreationMetadata,
  EventFilter,
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
import { LaterSyncs, makeFolder } from './atomic-write.ts'
import type { ObjectUpdate } from './file-owners.ts'
import { type NodeGateway, withGatewayLabels } from '../../model/lanes/lanes.ts'
import { KindFiles, writeId } from './kind-files.ts'
import { FileLeases } from './file-leases.ts'
import { type FileProblem, ProblemBoard, type StateTrouble } from './problem-board.ts'
import { RemovalMarks } from './removal-marks.ts'
import { UserFolder } from './user/user-folder.ts'

export interface FileApiDeps {
  readonly clock: Clock
  readonly logger: Logger
  /** Default: one of its own. */
  readonly syncs?: LaterSyncs
}

export interface FileApiInit {
  /**
   * The user's folder. It is only read here; `sealane export` writes to it through kubeapi/files/user/user-objects.ts.
   */
  readonly objects: string
  /** Our folder: objects/, files/ (last good versions), leases/. It is created if it is missing. */
  readonly state: string
  /**
   * The gateway nodes: their Nodes get the gateway label, and all others lose it. If absent, the labels are as in the
   * files.
   */
  readonly gateways?: readonly NodeGateway[]
  /** Milliseconds between full scans, for events that the kernel dropped. */
  readonly rescanMs?: number
  /**
   * Shows what could be read even if a folder of the state could not, for a command that reads once and then calls
   * troubledState(). Otherwise a kind is not synced before all of its folders have been read.
   */
  readonly once?: boolean
  /**
   * How many milliseconds this process leaves it to others to note a new or changed object of the user, before it does so
   * itself. Until then it does not show the change. Several processes that note the same object at once wait for each
   * other's disk writes. Absent: 0, as for the process that acts on the objects.
   */
  readonly notesAfterMs?: number
  /** Several hubs keep the state equal: see RemovalMarks. */
  readonly severalHubs?: boolean
}

const DEFAULT_RESCAN_MS = 30_000
const ROOT_CHECK_MS = 3000
/** How long other processes than the one that acts on the objects leave it to that one to store good versions. */
const STORES_AFTER_MS = 1000
/**
 * How long a process that ends waits for the disk, for its pending writes and their syncs together. The kernel writes
 * what is left without it, unless the machine loses its power first, and a disk that hangs must not keep a hub from
 * leaving its office.
 */
export const CLOSE_SYNC_MS = 5000
/** More parallel writes would only queue in the kernel. */
const MAX_WRITES = 16

export class FileApi implements ClusterApi {
  /** Leases that processes of all nodes share through the state folder. */
  readonly leases: LeaseStore
  readonly #leases: FileLeases
  readonly #deps: FileApiDeps
  readonly #init: FileApiInit
  readonly #problems: ProblemBoard
  readonly #kinds = new Map<Kind, KindFiles>()
  readonly #writes = new WriteQueue(MAX_WRITES)
  readonly #syncs: LaterSyncs
  readonly #events: EventFilter
  readonly #user: UserFolder
  readonly #residents = new ResidentNamespaces((key, object) => this.#kinds.get('Namespace')?.imply(key, object))
  #userLoaded = false
  readonly #stop = new AbortController()
  #cancelRescan: (() => void) | undefined
  #closing: Promise<void> | undefined

  constructor(deps: FileApiDeps, init: FileApiInit) {
    this.#deps = deps
    this.#init = init
    this.#syncs = deps.syncs ?? new LaterSyncs()
    this.#problems = new ProblemBoard(deps.logger)
    this.#events = new EventFilter(deps.clock)
    this.#leases = new FileLeases(
      {
        clock: deps.clock,
        problems: this.#problems,
        onLease: (key, lease) => this.#kinds.get('Lease')?.imply(key, lease),
      },
      { root: join(init.state, 'leases') },
    )
    this.leases = this.#leases
    this.#user = new UserFolder(
      {
        clock: deps.clock,
        onUpdate: (updates) => this.#onUserUpdates(updates),
        onProblems: (place, problems) => this.#problems.set(place, problems),
        onUnread: (files) => this.#problems.unread(files),
        onStateError: (path, error) => this.#problems.stateError(path, error),
      },
      {
        folder: init.objects,
        state: join(init.state, 'files'),
        exclude: resolve(init.state),
        storesAfterMs: (init.notesAfterMs ?? 0) > 0 ? STORES_AFTER_MS : 0,
      },
    )
  }

  /** Returns the current problems of the user's files. */
  problems(): readonly FileProblem[] {
    return this.#problems.list()
  }

  /** Returns the paths in the state folder that could not be read or written so far. */
  troubledState(): readonly StateTrouble[] {
    return this.#problems.troubledState()
  }

  /** The number of the user's objects of kinds that Sealane does not read. */
  ignoredObjects(): number {
    return this.#user.claims.ignored
  }

  cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]> {
    let files = this.#kinds.get(kind)
    if (files === undefined) {
      files = this.#createKind(kind)
      // Deferred, so that the caller can register a listener before the first read.
      setImmediate(() => this.#load(kind))
    }
    return files.store.cache as unknown as ObjectCache<ObjectKinds[K]>
  }

  asApplied<T extends KubeObject>(object: T): T {
    return object
  }

  async apply(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    const files = await this.#ready(kind, metadata.name, metadata.namespace, signal)
    const key = keyOf(object)
    await this.#writes.run(writeId(kind, key), async () => {
      this.#checkOpen(signal)
      const { user, ours } = files.store.layers(key)
      if (user !== undefined) {
        throw new ClusterApiError('Forbidden', `${titleOf(object)} is the user's own and is not overwritten`)
      }
      if (ours !== undefined && sameOwnedParts(ours, object)) return
      const next = withServerMetadata(object, ours, () => this.#creation())
      await files.folder.write(key, 'object', next)
      files.wrote(key, 'object')
    })
  }

  async applyStatus(object: KubeObject, signal?: AbortSignal): Promise<void> {
    const { kind, metadata } = object
    const files = await this.#ready(kind, metadata.name, metadata.namespace, signal)
    const key = keyOf(object)
    await this.#writes.run(writeId(kind, key), async () => {
      this.#checkOpen(signal)
      const current = files.store.current(key)
      if (current === undefined) throw new ClusterApiError('NotFound', `${titleOf(object)} does not exist`)
      const status = plain((object as { status?: unknown }).status)
      if (isDeepStrictEqual((current as { status?: unknown }).status, status)) return
      await files.folder.write(key, 'status', { uid: current.metadata.uid ?? '', status })
      files.wrote(key, 'status')
    })
  }

  /**
   * Reads the status from disk. If it overwrites a concurrent write of another process, that process writes again at
   * its next heartbeat.
   */
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
    const files = await this.#ready(kind, name, namespace, signal)
    if (kind === 'Lease') await this.#leases.read(name, signal ?? this.#stop.signal)
    const key = objectKey(name, namespace)
    for (const part of ['object', 'status'] as const) {
      const path = files.folder.pathOf(key, part)
      if (files.folder.stamp(path) === undefined && !files.folder.lacks(path)) {
        throw new ClusterApiError('Unavailable', `cannot read ${path}: its folder is not accessible`)
      }
      files.refresh(key, part)
    }
    return files.store.current(key) as ObjectKinds[K] | undefined
  }

  async remove(kind: Kind, name: string, namespace?: string, signal?: AbortSignal): Promise<void> {
    const files = await this.#ready(kind, name, namespace, signal)
    const key = objectKey(name, namespace)
    await this.#writes.run(writeId(kind, key), () => {
      this.#checkOpen(signal)
      if (files.store.layers(key).user !== undefined) {
        throw new ClusterApiError(
          'Forbidden',
          `${objectTitle(kind, name, namespace)} is the user's own and is not removed`,
        )
      }
      if (kind === 'Lease') this.#leases.remove(name)
      files.folder.remove(key, 'object')
      files.folder.remove(key, 'status')
      files.refresh(key, 'object')
      files.refresh(key, 'status')
      return Promise.resolve()
    })
  }

  /** Writes events to the log, since there is no API to keep them. */
  report(event: ObjectEvent): void {
    const passed = this.#stop.signal.aborted ? undefined : this.#events.pass(event)
    if (passed === undefined) return
    const { regarding, type, reason, note } = passed
    const text = `${objectTitle(regarding.kind, regarding.name, regarding.namespace)}: ${note}`
    if (type === 'Warning') this.#deps.logger.warn(text, { reason })
    else this.#deps.logger.info(text, { reason })
  }

  close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    this.#stop.abort(new ClusterApiError('Unavailable', 'the cluster API is closed'))
    this.#cancelRescan?.()
    let cancel: (() => void) | undefined
    const late = new Promise<void>((resolve) => (cancel = this.#deps.clock.setTimer(CLOSE_SYNC_MS, resolve)))
    // Each step is taken, also after a write that hangs: watches that stay open keep the process alive.
    await Promise.race([this.#writes.settled(), late])
    await Promise.race([this.#user.close(), late])
    this.#leases.close()
    await Promise.race([Promise.all([...this.#kinds.values()].map((files) => files.close())), late])
    await Promise.race([this.#syncs.settled(), late])
    cancel?.()
  }

  #createKind(kind: Kind): KindFiles {
    const files = new KindFiles(
      {
        clock: this.#deps.clock,
        onCorrupt: (path, reason) => this.#problems.corrupt(path, reason),
        onStateError: (path, error) => this.#problems.stateError(path, error),
        syncs: this.#syncs,
        marks: this.#init.severalHubs === true ? new RemovalMarks(this.#init.state) : undefined,
        writes: this.#writes,
      },
      {
        ...{ kind, path: join(this.#init.state, 'objects', kind) },
        ...{ notesAfterMs: this.#init.notesAfterMs ?? 0, once: this.#init.once === true },
      },
    )
    this.#kinds.set(kind, files)
    return files
  }

  #load(kind: Kind): void {
    if (this.#stop.signal.aborted) return
    if (!this.#userLoaded) {
      this.#userLoaded = true
      this.#user.load()
      for (const { kind: resident, key } of this.#user.claims.objects()) this.#residents.note(resident, key, true)
      this.#scheduleRescan(this.#deps.clock.monotonic())
    }
    const files = this.#kinds.get(kind)
    if (files === undefined) return
    this.#makeFolder(files.folder.path)
    if (kind === 'Namespace') this.#residents.reportAll()
    if (kind === 'Lease') this.#leases.open()
    files.load(this.#labelled(this.#user.claims.objects(kind)), this.#init.once)
  }

  /** Creates the folder before it is watched. If that fails, reads find nothing and writes report the reason. */
  #makeFolder(path: string): void {
    try {
      makeFolder(path)
    } catch (error) {
      this.#problems.stateError(path, error)
    }
  }

  /** Scans all files every rescanMs, and checks every three seconds whether the watched folders were replaced. */
  #scheduleRescan(lastMs: number): void {
    const { clock } = this.#deps
    const rescanMs = this.#init.rescanMs ?? DEFAULT_RESCAN_MS
    this.#cancelRescan = clock.setTimer(Math.min(rescanMs, ROOT_CHECK_MS), () => {
      if (this.#stop.signal.aborted) return
      const now = clock.monotonic()
      const due = now - lastMs >= rescanMs
      if (due || !this.#user.rooted) this.#user.rescan()
      for (const [kind, files] of this.#kinds) {
        if (!files.loaded) this.#load(kind)
        else if (due || !files.rooted) files.rescan()
        if (kind === 'Lease' && (due || !this.#leases.rooted)) this.#leases.rescan()
      }
      this.#scheduleRescan(due ? now : lastMs)
    })
  }

  #onUserUpdates(updates: readonly ObjectUpdate[]): void {
    for (const { kind, key, object } of this.#labelled(updates)) {
      this.#residents.note(kind, key, object !== undefined)
      const files = this.#kinds.get(kind)
      if (files?.store.cache.synced === true) files.setUser(key, object)
    }
  }

  #labelled(updates: readonly ObjectUpdate[]): readonly ObjectUpdate[] {
    const { gateways } = this.#init
    if (gateways === undefined) return updates
    return updates.map((update) =>
      update.object?.kind === 'Node' ? { ...update, object: withGatewayLabels(update.object, gateways) } : update,
    )
  }

  /** Returns the kind's files after their first read. */
  async #ready(
    kind: Kind,
    name: string,
    namespace: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<KindFiles> {
    this.#checkOpen(signal)
    checkAddress(kind, name, namespace)
    await this.#synced(this.cache(kind), signal)
    return this.#kinds.get(kind) ?? this.#createKind(kind)
  }

  async #synced(cache: ObjectCache<KubeObject>, signal: AbortSignal | undefined): Promise<void> {
    if (cache.synced) return
    await cache.whenSynced(signal === undefined ? this.#stop.signal : AbortSignal.any([signal, this.#stop.signal]))
  }

  #checkOpen(signal: AbortSignal | undefined): void {
    signal?.throwIfAborted()
    this.#stop.signal.throwIfAborted()
  }

  #creation(): CreationMetadata {
    const creationTimestamp = new Date(this.#deps.clock.now()).toISOString().replace(/\.\d+Z$/, 'Z')
    return { uid: randomUUID(), creationTimestamp }
  }
}

function titleOf({ kind, metadata }: KubeObject): string {
  return objectTitle(kind, metadata.name, metadata.namespace)
}
