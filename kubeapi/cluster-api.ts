/**
 * A Kubernetes-shaped object API. Drivers: `kube/` (an API server), `files/` (a directory of YAML and a state
 * directory), `memory/` (for tests and single-process use). All pass one compliance suite:
 * test/compliance/cluster-api.ts.
 */
import type { Condition, Kind, KubeObject, Lease, ObjectKinds, ObjectMeta } from '../model/model.ts'
import type { ReasonCode } from '../model/reasons/reasons.ts'

export type ObjectChange<T> =
  | { readonly type: 'set'; readonly object: T; readonly previous: T | undefined }
  | { readonly type: 'removed'; readonly object: T }

/** A live, read-only copy of all objects of one kind. */
export interface ObjectCache<T> {
  /** False until all existing objects have been read once. Never becomes false again. */
  readonly synced: boolean
  /**
   * True while the server says that it does not know the kind, of which nothing has been read. Absent or false: the
   * kind is known, or nothing is known about it.
   */
  readonly isUnserved?: boolean
  list(): readonly T[]
  /** Takes no namespace for cluster-scoped kinds. */
  get(name: string, namespace?: string): T | undefined
  /**
   * Calls the listener after each change, once the cache shows it; also for each object found by the first read, and
   * once with undefined when the cache becomes synced, unserved or served. The listener must not throw or block. Returns a
   * function that removes the listener.
   */
  onChange(listener: (change: ObjectChange<T> | undefined) => void): () => void
  /** Resolves once synced; rejects with the signal's reason. */
  whenSynced(signal: AbortSignal): Promise<void>
}

/** What happened to an object, for users (`kubectl describe`): events.k8s.io/v1. */
export interface ObjectEvent {
  readonly regarding: {
    readonly kind: Kind
    readonly name: string
    readonly namespace?: string | undefined
    readonly uid?: string | undefined
  }
  readonly type: 'Normal' | 'Warning'
  readonly reason: ReasonCode
  /** A sentence of at most 1024 bytes; a longer one is truncated. */
  readonly note: string
}

export interface ObjectName {
  readonly kind: Kind
  readonly name: string
  readonly namespace?: string | undefined
}

export interface ClusterApi {
  /** Returns the cache of a kind. The first call starts it; all callers share it. */
  cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]>
  /**
   * Server-side apply as manager "sealane": creates the object, or replaces the parts that we own (labels, annotations,
   * owners, spec, endpoints, ports). It does not touch the status, and does nothing if nothing differs. The file driver
   * rejects objects that exist among the user's own. Throws ClusterApiError.
   */
  apply(object: KubeObject, signal?: AbortSignal): Promise<void>
  /**
   * Returns the object as apply() writes it, with the labels and annotations that the driver adds to every object.
   * Returns the same object if it adds none.
   */
  asApplied<T extends KubeObject>(object: T): T
  /** Replaces `.status` of an existing object. Throws ClusterApiError NotFound. */
  applyStatus(object: KubeObject, signal?: AbortSignal): Promise<void>
  /**
   * Sets one condition of an object whose status another component writes, and keeps the rest of the status. That
   * component's next applyStatus() overwrites the condition. Throws ClusterApiError NotFound.
   */
  setCondition(object: ObjectName, condition: Condition, signal?: AbortSignal): Promise<void>
  /**
   * Reads an object from storage and not from a cache; undefined if it does not exist. Throws ClusterApiError if
   * storage does not answer: an object that cannot be read may still exist.
   */
  read<K extends Kind>(
    kind: K,
    name: string,
    namespace?: string,
    signal?: AbortSignal,
  ): Promise<ObjectKinds[K] | undefined>
  /**
   * Removes an object that apply() created; does nothing if it does not exist. Throws ClusterApiError Forbidden for the
   * user's own objects.
   */
  remove(kind: Kind, name: string, namespace?: string, signal?: AbortSignal): Promise<void>
  /**
   * Reports an Event to the user. Best effort: it never throws and never blocks. The same event within ten minutes is
   * dropped.
   */
  report(event: ObjectEvent): void
  /** Stops watches and waits for pending writes. */
  close(): Promise<void>
}

/**
 * Conflict: another client wrote first, or the namespace is terminating; reading again and retrying helps.
 * Unauthorized: the server rejects our credentials. Unavailable: there is no valid answer; retrying helps.
 */
export type ClusterApiErrorCode = 'NotFound' | 'Forbidden' | 'Invalid' | 'Unavailable' | 'Conflict' | 'Unauthorized'

export class ClusterApiError extends Error {
  readonly code: ClusterApiErrorCode
  constructor(code: ClusterApiErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'ClusterApiError'
    this.code = code
  }
}

// Leases that several processes write with optimistic locking: each write names the version that was read, and the
// later write is rejected. Implementations: kubeapi/kube/own-namespace.ts, kubeapi/files/file-leases.ts; for tests
// test/gateway/support/fake-leases.ts. All pass one compliance suite: test/compliance/lease-store.ts.

export type StoredLease = Lease & { readonly metadata: ObjectMeta & { readonly resourceVersion?: string } }

export interface LeaseStore {
  /** Reads from the server and not from a cache; undefined if there is no such Lease. Throws ClusterApiError. */
  read(name: string, signal: AbortSignal): Promise<StoredLease | undefined>
  /**
   * Creates the Lease if `metadata.resourceVersion` is absent, else replaces that version. Returns what is stored. The
   * store sets the namespace. Throws ClusterApiError Conflict if another process wrote first.
   */
  write(lease: StoredLease, signal: AbortSignal): Promise<StoredLease>
}
