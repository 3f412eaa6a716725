/**
 * A Kubernetes-shaped object API. Drivers: `kube/` (an API server), `files/` (a directory of YAML and a state
 * directory), `memory/` (for tests and single-process use). One compliance suite: test/compliance/cluster-api.ts.
 */
import type { Condition, Kind, KubeObject, Lease, ObjectKinds, ObjectMeta } from '../model/model.ts'
import type { ReasonCode } from '../model/reasons/reasons.ts'

export type ObjectChange<T> =
  | { readonly type: 'set'; readonly object: T; readonly previous: T | undefined }
  | { readonly type: 'removed'; readonly object: T }

/** A live, read-only copy of all objects of one kind. */
export interface ObjectCache<T> {
  /** False until everything that exists has been read once. Never becomes false again. */
  readonly synced: boolean
  list(): readonly T[]
  /** Without a namespace for cluster-scoped kinds. */
  get(name: string, namespace?: string): T | undefined
  /**
   * Calls back after each change, once the cache shows it; also for each object found by the first read, and once
   * with undefined when the cache becomes synced. Must not throw or block. Gives the function that ends it.
   */
  onChange(listener: (change: ObjectChange<T> | undefined) => void): () => void
  /** Resolves once synced; rejects with the signal's reason. */
  whenSynced(signal: AbortSignal): Promise<void>
}

/** What happened to an object, for people who look at it (`kubectl describe`): events.k8s.io/v1. */
export interface ObjectEvent {
  readonly regarding: {
    readonly kind: Kind
    readonly name: string
    readonly namespace?: string | undefined
    readonly uid?: string | undefined
  }
  readonly type: 'Normal' | 'Warning'
  readonly reason: ReasonCode
  /** A sentence, at most 1024 characters; cut when longer. */
  readonly note: string
}

/** Which object. */
export interface ObjectName {
  readonly kind: Kind
  readonly name: string
  readonly namespace?: string | undefined
}

export interface ClusterApi {
  /** The cache of a kind, started by the first call and shared by all. */
  cache<K extends Kind>(kind: K): ObjectCache<ObjectKinds[K]>
  /**
   * Server-side apply as manager "sealane": creates or replaces what we own of the object (labels, annotations, owners,
   * spec, endpoints, ports). Status is left alone. Does nothing when nothing differs. The file driver only takes
   * objects that it does not find among the user's own. Throws ClusterApiError.
   */
  apply(object: KubeObject, signal?: AbortSignal): Promise<void>
  /**
   * The object as apply() writes it: with the labels and annotations that the driver puts on every object. The same
   * object where there are none.
   */
  asApplied<T extends KubeObject>(object: T): T
  /** Replaces `.status` of an existing object. Throws ClusterApiError NotFound. */
  applyStatus(object: KubeObject, signal?: AbortSignal): Promise<void>
  /**
   * Sets one condition of an object whose status another part writes, and leaves the rest of the status. What that part
   * says of the same condition at its next applyStatus() counts again. Throws ClusterApiError NotFound.
   */
  setCondition(object: ObjectName, condition: Condition, signal?: AbortSignal): Promise<void>
  /**
   * What is stored of an object now, asked afresh and not of a cache; undefined when it is not there. Throws
   * ClusterApiError where the answer cannot be had: an object that cannot be seen is not gone.
   */
  read<K extends Kind>(
    kind: K,
    name: string,
    namespace?: string,
    signal?: AbortSignal,
  ): Promise<ObjectKinds[K] | undefined>
  /** Removes an object that apply() made. Absent is fine. Throws ClusterApiError Forbidden for the user's own. */
  remove(kind: Kind, name: string, namespace?: string, signal?: AbortSignal): Promise<void>
  /**
   * Reports an Event to the user. Best effort: never throws, never waits; the same event again within ten minutes is
   * dropped.
   */
  report(event: ObjectEvent): void
  /** Ends watches and waits for writes under way. */
  close(): Promise<void>
}

/**
 * Conflict: someone else was faster, or the namespace is being ended; reading again and trying again helps.
 * Unauthorized: the server does not know who we are. Unavailable: no answer, or none that counts; trying again helps.
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

// Leases as registers that several processes write: each write names the version that was read, and the slower one is
// refused. Drivers: kube/kube-lease-store.ts, files/leases/file-leases.ts; for tests
// test/gateway/support/fake-leases.ts. One compliance suite: test/compliance/lease-store.ts.

export type StoredLease = Lease & { readonly metadata: ObjectMeta & { readonly resourceVersion?: string } }

export interface LeaseStore {
  /** What the server has now, past all caches; undefined when there is none. Throws ClusterApiError. */
  read(name: string, signal: AbortSignal): Promise<StoredLease | undefined>
  /**
   * Makes it where `metadata.resourceVersion` is absent, else replaces that version. Gives what is stored. The
   * namespace is the store's own. Throws ClusterApiError Conflict when somebody was faster.
   */
  write(lease: StoredLease, signal: AbortSignal): Promise<StoredLease>
}
