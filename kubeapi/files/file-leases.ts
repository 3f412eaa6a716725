/** The Leases of a site without Kubernetes: read and written as on a cluster, and shown in the cache of the kind. */
import { randomUUID } from 'node:crypto'
import { basename, dirname } from 'node:path'
import { SYSTEM_NAMESPACE } from '../../model/model.ts'
import { type Clock, orAborted, withDeadline } from '../../reconcile/reconcile.ts'
import type { LeaseStore, StoredLease } from '../kubeapi.ts'
import { LEASE_REQUEST_MS } from '../lease/lease.ts'
import { objectKey, type ObjectKey } from '../driver/driver.ts'
import { makeFolder, removeStaleTemporaries } from './atomic-write.ts'
import type { ProblemBoard } from './problem-board.ts'
import { TreeWatcher } from './tree-watcher.ts'
import { LeaseFolder, oddTime } from './lease-folder.ts'

export interface FileLeasesDeps {
  readonly clock: Clock
  readonly problems: Pick<ProblemBoard, 'corrupt' | 'odd' | 'stateError'>
  /** Called with each Lease that was read; undefined if there is none. */
  readonly onLease: (key: ObjectKey, lease: StoredLease | undefined) => void
}

export class FileLeases implements LeaseStore {
  readonly #deps: FileLeasesDeps
  readonly #root: string
  readonly #folder: LeaseFolder
  readonly #watcher: TreeWatcher
  readonly #known = new Set<string>()
  #isMade = false

  /** Creates `root` at the first use. */
  constructor(deps: FileLeasesDeps, init: { readonly root: string }) {
    this.#deps = deps
    this.#root = init.root
    this.#folder = new LeaseFolder({ onDamaged: (path, why) => deps.problems.corrupt(path, why) }, init)
    this.#watcher = new TreeWatcher(
      { onFile: (path) => this.#look(dirname(path)), onError: (path, error) => deps.problems.stateError(path, error) },
      { root: init.root, skip: (name) => name.startsWith('.') },
    )
  }

  /** Shows all existing Leases, then watches for changes by other processes. */
  open(): void {
    try {
      this.#makeRoot()
      removeStaleTemporaries(this.#root, this.#deps.clock.now())
    } catch (error) {
      this.#deps.problems.stateError(this.#root, error)
    }
    this.#watcher.rescan()
    this.rescan()
  }

  /** Finds changes that the watches missed. */
  rescan(): void {
    if (!this.rooted) this.#watcher.rescan()
    try {
      for (const name of new Set([...this.#known, ...this.#folder.names()])) this.#show(name)
    } catch (error) {
      this.#deps.problems.stateError(this.#root, error)
    }
  }

  get rooted(): boolean {
    return this.#watcher.rooted
  }

  close(): void {
    this.#watcher.close()
  }

  read(name: string, signal: AbortSignal): Promise<StoredLease | undefined> {
    return new Promise((resolve) => {
      signal.throwIfAborted()
      this.#makeRoot()
      resolve(this.#show(name))
    })
  }

  async write(lease: StoredLease, signal: AbortSignal): Promise<StoredLease> {
    signal.throwIfAborted()
    const { metadata } = lease
    const creationTimestamp = new Date(this.#deps.clock.now()).toISOString().replace(/\.\d+Z$/, 'Z')
    const born = metadata.uid === undefined ? { uid: randomUUID(), creationTimestamp } : {}
    const full: StoredLease = { ...lease, metadata: { ...metadata, ...born, namespace: SYSTEM_NAMESPACE } }
    this.#makeRoot()
    const stored = await withDeadline(this.#deps.clock, LEASE_REQUEST_MS, (late) =>
      orAborted(this.#folder.write(full), AbortSignal.any([signal, late])),
    )
    // Another process may have written in the meantime.
    this.#show(metadata.name)
    return stored
  }

  /** Removes a Lease; does nothing if there is none. Throws ClusterApiError Unavailable. */
  remove(name: string): void {
    this.#folder.remove(name)
    this.#show(name)
  }

  /** Creates the root only once: a root that disappears later means that the state is not accessible. */
  #makeRoot(): void {
    if (this.#isMade) return
    makeFolder(this.#root)
    this.#isMade = true
  }

  #look(folder: string): void {
    if (folder === this.#root) return
    try {
      this.#show(basename(folder))
    } catch (error) {
      this.#deps.problems.stateError(folder, error)
    }
  }

  #show(name: string): StoredLease | undefined {
    const found = this.#folder.read(name)
    if (found === undefined) this.#known.delete(name)
    else this.#known.add(name)
    const odd = found === undefined ? undefined : oddTime(found, this.#deps.clock.now())
    if (odd !== undefined) this.#deps.problems.odd(`Lease ${name}`, odd)
    const lease = found === undefined ? undefined : inOurNamespace(found)
    this.#deps.onLease(objectKey(name, SYSTEM_NAMESPACE), lease)
    return lease
  }
}

function inOurNamespace(lease: StoredLease): StoredLease {
  return { ...lease, metadata: { ...lease.metadata, namespace: SYSTEM_NAMESPACE } }
}
