/**
 * Brings the local API to what is desired with as few writes as possible. It compares with the caches, so drift is
 * repaired, and remembers what it has compared, so that an object that has not changed costs one look.
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
import type { Clock } from '../../reconcile/reconcile.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import type { AgentMetrics } from './metrics.ts'

export interface MirrorWriterDeps {
  readonly api: ClusterApi
  readonly clock: Clock
  readonly logger: Logger
  readonly metrics: AgentMetrics
  /** Id of this cluster: its own Cluster is marked when all others are written, and so says that they are. */
  readonly own?: string
}

interface Remembered {
  readonly desired: KubeObject
  /** The cached object that was found to be right, or that our write was about; the cache may lag behind. */
  readonly present: KubeObject | undefined
  /** When it was written, monotonic; undefined when it was found to be right. */
  readonly writtenAt: number | undefined
}

interface Refused {
  readonly desired: KubeObject
  readonly present: KubeObject | undefined
  readonly namespace: KubeObject | undefined
  readonly at: number
}

type Verb = 'apply' | 'applyStatus' | 'remove'

/** Writes under way at once. */
const PARALLEL_WRITES = 16
/** The cache shows a write sooner than this, unless something undid it in between. */
const LAG_MS = 30_000
/** What the API has refused is offered again after this time, or when something about it has changed. */
const REFUSED_MS = 30_000
/** Beyond this many refusals the oldest are forgotten, so they may be logged and tried again. */
const MAX_REFUSED = 2000
/** How an API server says that a namespace ends, or is no more. */
const NAMESPACE_GONE_CODES: ReadonlySet<ClusterApiErrorCode> = new Set(['Conflict', 'Forbidden', 'NotFound'])
const NAMESPACE_GONE = /being terminated|namespaces "[^"]*" not found/

export class MirrorWriter {
  readonly #deps: MirrorWriterDeps
  readonly #remembered = new Map<string, Remembered>()
  /** Refusals already logged, by object: the same one is not logged in every round. */
  readonly #reported = new Map<string, string>()
  /** By verb and object. */
  readonly #refused = new Map<string, Refused>()

  constructor(deps: MirrorWriterDeps) {
    this.#deps = deps
  }

  /** To be called when an object has vanished from the cache: our write may be what has vanished. */
  forget(object: { readonly kind: Kind; readonly metadata: ObjectMeta }): void {
    this.#remembered.delete(objectKeyText(object))
  }

  /** True while the API does not take the object as it is. */
  isRefused(object: KubeObject): boolean {
    return this.#isHeld('apply', object)
  }

  /**
   * Applies what differs: endpoints first, since who finds a new service finds its endpoints; then what gives addresses
   * up, since gateways use no cluster that claims what another one still has. This cluster's own Cluster gets its mark
   * last, when all others are there that the API takes. Goes on past failures and gives those that may pass.
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

  /** Replaces the status of each object. Failures as with apply. */
  applyStatuses(objects: readonly KubeObject[], signal: AbortSignal): Promise<ClusterApiError[]> {
    return this.#all(
      'applyStatus',
      objects.filter((object) => !this.#isHeld('applyStatus', object)),
      signal,
    )
  }

  /** Removes objects, kind after kind in the order given. Failures as with apply. */
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

  /** It could not be written, and may be later. One that the API refuses holds nothing up. */
  #isLateCluster(object: KubeObject): boolean {
    const known = this.#remembered.has(objectKeyText(object)) || this.#isHeld('apply', object)
    return object.kind === 'Cluster' && !known
  }

  /**
   * The Clusters among them are there, as the API says now: where its CustomResourceDefinition was taken away and came
   * back, the cache may show them still.
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

  /** A Cluster that loses a pod CIDR. */
  #givesUp(desired: KubeObject): boolean {
    if (desired.kind !== 'Cluster') return false
    const present = this.#deps.api.cache('Cluster').get(desired.metadata.name)
    return present?.spec.podCIDRs.some((cidr) => !desired.spec.podCIDRs.includes(cidr)) ?? false
  }

  #isRight(key: string, desired: KubeObject): boolean {
    const present = this.#present(desired)
    const last = this.#remembered.get(key)
    if (last !== undefined && last.present === present && isSame(last.desired, desired)) {
      // Written, and the cache does not show it yet; or it shows what others added, which writing again will not
      // change.
      if (last.writtenAt === undefined || this.#deps.clock.monotonic() - last.writtenAt < LAG_MS) return true
    }
    if (present === undefined) return false
    // An API server may add defaults to a slice, so there our own part decides, once it has been written as it is.
    const written = last !== undefined && isSame(last.desired, desired)
    const applied = this.#deps.api.asApplied(desired)
    const right =
      desired.kind === 'EndpointSlice' && written ? holdsAtLeast(present, applied) : holdsExactly(present, applied)
    if (right) this.#remembered.set(key, { desired, present, writtenAt: undefined })
    return right
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

  /** Gives the error when trying again later may help. What the API will never take is only logged. */
  async #one(verb: Verb, object: KubeObject, signal: AbortSignal): Promise<ClusterApiError | undefined> {
    const { metrics, logger } = this.#deps
    const key = objectKeyText(object)
    // As known before the write: what is made while it is refused lifts the refusal.
    const present = this.#present(object)
    const namespace = this.#namespace(object)
    // Remembered before it is done: who forgets it meanwhile has seen it come and go.
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
      // That a namespace ends is no failure, and its end is seen in the cache a moment later.
      const level = ending ? 'debug' : 'warn'
      if (this.#reported.get(key) !== text) {
        logger[level]('object not written', { reason: 'ObjectNotWritten', object: key, verb, why: error.message })
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

/** The latest comes last. */
function remember<V>(map: Map<string, V>, key: string, value: V): void {
  map.delete(key)
  map.set(key, value)
  const [oldest] = map.keys()
  if (map.size > MAX_REFUSED && oldest !== undefined) map.delete(oldest)
}

function isSame(a: KubeObject, b: KubeObject): boolean {
  return a === b || isDeepStrictEqual(a, b)
}

// Whether the local API already holds what is desired. Pure.

type Loose = KubeObject & { readonly status?: unknown }

/** True when everything that we write is exactly so, and there is nothing else. Status is not compared. */
function holdsExactly(present: KubeObject, desired: KubeObject): boolean {
  return isDeepStrictEqual(ownedParts(present), ownedParts(desired))
}

/** True when everything that we write is so; an API server or another controller may have added something. */
function holdsAtLeast(present: KubeObject, desired: KubeObject): boolean {
  return covers(ownedParts(present), ownedParts(desired))
}

function ownedParts(object: KubeObject): unknown {
  const { status: _status, metadata, ...rest } = object as Loose
  return { ...rest, labels: metadata.labels ?? {}, annotations: metadata.annotations ?? {} }
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
