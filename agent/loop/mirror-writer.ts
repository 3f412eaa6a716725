/**
 * Writes the desired objects to the local API with as few writes as possible. It compares with the caches, so drift is
 * repaired. It remembers what it has compared, so an unchanged object costs one lookup.
 */
import { isDeepStrictEqual } from 'node:util'
import { type ClusterApi, ClusterApiError, type ClusterApiErrorCode } from '../../kubeapi/kubeapi.ts'
import {
  APP_MANAGED_BY_SEALANE,
  type Kind,
  type KubeObject,
  LABEL_APP_MANAGED_BY,
  type ObjectMeta,
  objectKeyText,
} from '../../model/model.ts'
import { ANNOTATION_DERIVED_SERVICE } from '../../model/services/services.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { AgentMetrics } from './metrics.ts'

export interface MirrorWriterDeps {
  readonly api: ClusterApi
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
  /** Id of this cluster. Its own Cluster is labelled last, so the label means that all other Clusters are written. */
  readonly own?: string
}

interface Remembered {
  readonly desired: KubeObject
  /** The cached object that was found correct, or that was cached before our write. The cache may lag behind. */
  readonly present: KubeObject | undefined
  /** When the object was written, monotonic. Undefined if it was found correct. */
  readonly writtenAt: number | undefined
}

interface Refused {
  readonly desired: KubeObject
  readonly present: KubeObject | undefined
  readonly namespace: KubeObject | undefined
  readonly at: number
}

type Verb = 'apply' | 'applyStatus' | 'remove'

/** The number of concurrent writes. */
const PARALLEL_WRITES = 16
/** The cache shows a write within this time, unless another change reverted it. */
const LAG_MS = 30_000
/**
 * A refused object is tried again after this time, or when the object, its cached state or its namespace has changed.
 */
const REFUSED_MS = 30_000
/** Beyond this number, the oldest refusals are forgotten, so these objects may be tried and logged again. */
const MAX_REFUSED = 2000
/** Kinds to which an API server adds defaults. */
const HAS_DEFAULTS: ReadonlySet<Kind> = new Set<Kind>(['EndpointSlice', 'Service'])
/** How an API server reports that a namespace is terminating or does not exist. */
const NAMESPACE_GONE_CODES: ReadonlySet<ClusterApiErrorCode> = new Set(['Conflict', 'Forbidden', 'NotFound'])
const NAMESPACE_GONE = /being terminated|namespaces "[^"]*" not found/

export class MirrorWriter {
  readonly #deps: MirrorWriterDeps
  readonly #remembered = new Map<string, Remembered>()
  /** Refusals that were logged, by object, so that no round logs the same one again. */
  readonly #reported = new Map<string, string>()
  /** Whether a ServiceImport has been seen with `clusterSelectors`: the API has the field, so it is missed otherwise. */
  #keepsSelectors = false
  /** Refusals by verb and object. */
  readonly #refused = new Map<string, Refused>()

  constructor(deps: MirrorWriterDeps) {
    this.#deps = deps
  }

  /** Must be called when an object is removed from the cache: the removed object may be the one that was written. */
  forget(object: { readonly kind: Kind; readonly metadata: ObjectMeta }): void {
    this.#remembered.delete(objectKeyText(object))
  }

  /** Whether the API refuses the object in its present form. */
  isRefused(object: KubeObject): boolean {
    return this.#isHeld('apply', object)
  }

  /**
   * Applies the objects that differ. Slices come first, so that a client that finds a new service finds its endpoints.
   * Clusters that lose a pod CIDR come next, since gateways ignore a cluster that claims a range that another one still
   * has. This cluster's own Cluster is labelled last, once all other Clusters that the API accepts exist. A failure
   * does not stop the other writes. Gives the failures that a later try may resolve.
   */
  async apply(objects: ReadonlyMap<string, KubeObject>, signal: AbortSignal): Promise<ClusterApiError[]> {
    const groups: readonly [slices: KubeObject[], givingUp: KubeObject[], others: KubeObject[]] = [[], [], []]
    const own: KubeObject[] = []
    const right: KubeObject[] = []
    for (const [key, object] of objects) {
      if (this.#isHeld('apply', object)) continue
      if (this.#isRight(key, object)) right.push(object)
      else if (this.#isUnmarkedOwn(object)) own.push(object)
      else groups[object.kind === 'EndpointSlice' ? 0 : this.#givesUp(object) ? 1 : 2].push(object)
    }
    const failures: ClusterApiError[] = []
    for (const group of groups) failures.push(...(await this.#all('apply', group, signal)))
    if (own.length === 0) return failures
    const isLate = [...objects.values()].some((one) => !own.includes(one) && this.#isLateCluster(one))
    if (isLate || !(await this.#areThere(right, failures, signal))) return failures
    return [...failures, ...(await this.#all('apply', own, signal))]
  }

  /** Replaces the status of each object. Gives failures as apply() does. */
  applyStatuses(objects: readonly KubeObject[], signal: AbortSignal): Promise<ClusterApiError[]> {
    return this.#all(
      'applyStatus',
      objects.filter((object) => !this.#isHeld('applyStatus', object)),
      signal,
    )
  }

  /** Removes the objects, one kind after the other in the given order. Gives failures as apply() does. */
  async remove(objects: readonly KubeObject[], signal: AbortSignal): Promise<ClusterApiError[]> {
    const failures: ClusterApiError[] = []
    for (const kind of new Set(objects.map((object) => object.kind))) {
      const group = objects.filter((object) => object.kind === kind)
      failures.push(...(await this.#all('remove', group, signal)))
    }
    return failures
  }

  #isUnmarkedOwn(object: KubeObject): boolean {
    if (object.kind !== 'Cluster' || object.metadata.name !== this.#deps.own) return false
    return this.#present(object)?.metadata.labels?.[LABEL_APP_MANAGED_BY] !== APP_MANAGED_BY_SEALANE
  }

  /** Whether a Cluster could not be written but may be later. A Cluster that the API refuses delays nothing. */
  #isLateCluster(object: KubeObject): boolean {
    const known = this.#remembered.has(objectKeyText(object)) || this.#isHeld('apply', object)
    return object.kind === 'Cluster' && !known
  }

  /**
   * Whether the Clusters among the objects exist in the API now. If their CustomResourceDefinition was deleted and
   * restored, the cache may still show deleted ones.
   */
  async #areThere(objects: readonly KubeObject[], failures: ClusterApiError[], signal: AbortSignal): Promise<boolean> {
    for (const { kind, metadata } of objects) {
      if (kind !== 'Cluster') continue
      try {
        if ((await this.#deps.api.read(kind, metadata.name, undefined, signal)) === undefined) return false
      } catch (error) {
        if (!(error instanceof ClusterApiError)) throw error
        failures.push(error)
        return false
      }
    }
    return true
  }

  /** Whether the desired Cluster loses a pod CIDR. */
  #givesUp(desired: KubeObject): boolean {
    if (desired.kind !== 'Cluster') return false
    const present = this.#deps.api.cache('Cluster').get(desired.metadata.name)
    return present?.spec.podCIDRs.some((cidr) => !desired.spec.podCIDRs.includes(cidr)) ?? false
  }

  #isRight(key: string, desired: KubeObject): boolean {
    const present = this.#present(desired)
    const last = this.#remembered.get(key)
    if (last !== undefined && last.present === present && isSame(last.desired, desired)) {
      // The cache does not show the write yet, or it shows additions by others that another write would not change.
      if (last.writtenAt === undefined || this.#deps.clock.monotonic() - last.writtenAt < LAG_MS) return true
    }
    if (present === undefined) return false
    if (present.kind === 'ServiceImport' && present.spec.clusterSelectors !== undefined) this.#noteSelectors()
    // An API server adds defaults to these kinds, so once our part has been written, only our part counts.
    const written = last !== undefined && isSame(last.desired, desired)
    const applied = this.#deps.api.asApplied(desired)
    const right =
      HAS_DEFAULTS.has(desired.kind) && written
        ? holdsAtLeast(present, applied)
        : holdsExactly(present, applied) ||
          (written && !this.#keepsSelectors && holdsExactly(present, withoutSelectors(applied)))
    if (right) this.#remembered.set(key, { desired, present, writtenAt: undefined })
    return right
  }

  /** From now on, imports count as wrong that an earlier CRD has left without selectors. */
  #noteSelectors(): void {
    if (this.#keepsSelectors) return
    this.#keepsSelectors = true
    for (const [key, { desired }] of this.#remembered)
      if (desired.kind === 'ServiceImport' && desired.spec.clusterSelectors !== undefined) this.#remembered.delete(key)
  }

  #isHeld(verb: Verb, desired: KubeObject): boolean {
    const held = this.#refused.get(`${verb} ${objectKeyText(desired)}`)
    return (
      held !== undefined &&
      held.present === this.#present(desired) &&
      held.namespace === this.#namespace(desired) &&
      this.#deps.clock.monotonic() - held.at < REFUSED_MS &&
      isSame(held.desired, desired)
    )
  }

  #namespace({ metadata }: KubeObject): KubeObject | undefined {
    const { namespace } = metadata
    return namespace === undefined ? undefined : this.#deps.api.cache('Namespace').get(namespace)
  }

  #present({ kind, metadata }: KubeObject): KubeObject | undefined {
    return this.#deps.api.cache(kind).get(metadata.name, metadata.namespace)
  }

  async #all(verb: Verb, objects: readonly KubeObject[], signal: AbortSignal): Promise<ClusterApiError[]> {
    const failures: ClusterApiError[] = []
    let next = 0
    const worker = async (): Promise<void> => {
      for (;;) {
        const object = objects[next++]
        if (object === undefined) return
        signal.throwIfAborted()
        const failure = await this.#one(verb, object, signal)
        if (failure !== undefined) failures.push(failure)
      }
    }
    await Promise.all(Array.from({ length: Math.min(PARALLEL_WRITES, objects.length) }, worker))
    return failures
  }

  /** Gives the error if a later try may succeed. Other refusals are only logged. */
  async #one(verb: Verb, object: KubeObject, signal: AbortSignal): Promise<ClusterApiError | undefined> {
    const { metrics, logger } = this.#deps
    const key = objectKeyText(object)
    // The state before the write: a namespace that is created during the refused write then lifts the refusal.
    const present = this.#present(object)
    const namespace = this.#namespace(object)
    // Stored before the write completes, so that forget() also covers an object that is created and removed meanwhile.
    const done: Remembered = { desired: object, present, writtenAt: this.#deps.clock.monotonic() }
    if (verb === 'apply') this.#remembered.set(key, done)
    try {
      await this.#write(verb, object, signal)
    } catch (error) {
      if (this.#remembered.get(key) === done) this.#remembered.delete(key)
      if (!(error instanceof ClusterApiError)) throw error
      metrics.writeFailures.inc({ verb, kind: object.kind })
      const ending = verb === 'apply' && this.#isNamespaceGone(object, error)
      if (!ending && error.code !== 'Forbidden' && error.code !== 'Invalid') return error
      const text = `${verb}: ${error.message}`
      // A terminating namespace is not a failure, and the cache shows its end a moment later.
      const level = ending ? 'debug' : 'warn'
      if (this.#reported.get(key) !== text) {
        logger[level]('cannot write an object to the API server', {
          reason: 'ObjectNotWritten',
          object: key,
          verb,
          why: error.message,
        })
      }
      remember(this.#reported, key, text)
      const at = this.#deps.clock.monotonic()
      remember(this.#refused, `${verb} ${key}`, { desired: object, present, namespace, at })
      return undefined
    }
    this.#reported.delete(key)
    this.#refused.delete(`${verb} ${key}`)
    metrics.writes.inc({ verb, kind: object.kind })
    if (verb === 'remove') this.#remembered.delete(key)
    return undefined
  }

  #isNamespaceGone(object: KubeObject, { code, message }: ClusterApiError): boolean {
    if (object.metadata.namespace === undefined || !NAMESPACE_GONE_CODES.has(code)) return false
    const namespace = this.#deps.api.cache('Namespace').get(object.metadata.namespace)
    return (
      NAMESPACE_GONE.test(message) ||
      namespace?.metadata.deletionTimestamp !== undefined ||
      namespace?.status?.phase === 'Terminating'
    )
  }

  async #write(verb: Verb, object: KubeObject, signal: AbortSignal): Promise<void> {
    const { api } = this.#deps
    const { kind, metadata } = object
    if (verb === 'apply') await api.apply(object, signal)
    else if (verb === 'applyStatus') await api.applyStatus(object, signal)
    else await api.remove(kind, metadata.name, metadata.namespace, signal)
  }
}

/** Moves the key to the end, so that the first key is the oldest. */
function remember<V>(map: Map<string, V>, key: string, value: V): void {
  map.delete(key)
  map.set(key, value)
  const [oldest] = map.keys()
  if (map.size > MAX_REFUSED && oldest !== undefined) map.delete(oldest)
}

function isSame(a: KubeObject, b: KubeObject): boolean {
  return a === b || isDeepStrictEqual(a, b)
}

// Compares the local API's objects with the desired ones. Pure.

type Loose = KubeObject & { readonly status?: unknown }

/** Whether all parts that we write are equal and nothing else is there. Ignores the status. */
function holdsExactly(present: KubeObject, desired: KubeObject): boolean {
  return isDeepStrictEqual(ownedParts(present), ownedParts(desired))
}

/** Whether all parts that we write are equal. An API server or another controller may have added others. */
function holdsAtLeast(present: KubeObject, desired: KubeObject): boolean {
  return covers(ownedParts(present), ownedParts(desired))
}

/** What an API server keeps whose CRD of the standard has no `clusterSelectors`. */
function withoutSelectors(object: KubeObject): KubeObject {
  if (object.kind !== 'ServiceImport') return object
  const { clusterSelectors: _later, ...spec } = object.spec
  return { ...object, spec }
}

function ownedParts(object: KubeObject): unknown {
  const { status: _status, metadata, ...rest } = object as Loose
  // Users set this annotation on imports that the agent wrote.
  const { [ANNOTATION_DERIVED_SERVICE]: _asked, ...annotations } = metadata.annotations ?? {}
  return { ...rest, labels: metadata.labels ?? {}, annotations }
}

function covers(present: unknown, desired: unknown): boolean {
  if (Array.isArray(desired)) {
    return (
      Array.isArray(present) &&
      present.length === desired.length &&
      desired.every((item, i) => covers(present[i], item))
    )
  }
  if (typeof desired !== 'object' || desired === null) return Object.is(present, desired)
  if (typeof present !== 'object' || present === null || Array.isArray(present)) return false
  return Object.entries(desired).every(([key, value]) => covers((present as Record<string, unknown>)[key], value))
}
