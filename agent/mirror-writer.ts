/**
 * Brings the local API to what is desired with as few writes as possible. It compares with the caches, so drift is
 * repaired, and remembers what it has compared, so that an object that has not changed costs one look.
 */
import { isDeepStrictEqual } from 'node:util'
import { type ClusterApi, ClusterApiError } from '../cluster/cluster-api.ts'
import type { KubeObject } from '../model/objects.ts'
import type { Logger } from '../runtime/logger.ts'
import type { AgentMetrics } from './metrics.ts'
import { holdsAtLeast, holdsExactly } from './object-match.ts'
import { objectKeyText } from './object-key-text.ts'

export interface MirrorWriterDeps {
  readonly cluster: ClusterApi
  readonly logger: Logger
  readonly metrics: AgentMetrics
}

interface Remembered {
  readonly desired: KubeObject
  /** The cached object that was found to be right; undefined until the cache has shown our write. */
  readonly present: KubeObject | undefined
}

type Verb = 'apply' | 'applyStatus' | 'remove'

/** Writes under way at once. */
const PARALLEL_WRITES = 16

export class MirrorWriter {
  readonly #deps: MirrorWriterDeps
  readonly #remembered = new Map<string, Remembered>()
  /** Refusals already told, by object: the same one is not logged in every round. */
  readonly #told = new Map<string, string>()

  constructor(deps: MirrorWriterDeps) {
    this.#deps = deps
  }

  /** Applies what differs, endpoints first. Goes on past failures and gives those that may pass. */
  async apply(objects: ReadonlyMap<string, KubeObject>, signal: AbortSignal): Promise<ClusterApiError[]> {
    const slices: KubeObject[] = []
    const others: KubeObject[] = []
    for (const [key, object] of objects) {
      if (!this.#isRight(key, object)) (object.kind === 'EndpointSlice' ? slices : others).push(object)
    }
    // Endpoints first: who finds a new service finds its endpoints.
    return [...(await this.#all('apply', slices, signal)), ...(await this.#all('apply', others, signal))]
  }

  /** Replaces the status of each object. Failures as with apply. */
  applyStatuses(objects: readonly KubeObject[], signal: AbortSignal): Promise<ClusterApiError[]> {
    return this.#all('applyStatus', objects, signal)
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

  #isRight(key: string, desired: KubeObject): boolean {
    const present = this.#present(desired)
    const last = this.#remembered.get(key)
    if (present === undefined) return false
    if (last?.desired === desired && last.present === present) return true
    // An API server may add defaults to a slice, so there our own part decides, once it has been written as it is.
    const written = last !== undefined && isDeepStrictEqual(last.desired, desired)
    const right =
      desired.kind === 'EndpointSlice' && written ? holdsAtLeast(present, desired) : holdsExactly(present, desired)
    if (right) this.#remembered.set(key, { desired, present })
    return right
  }

  #present({ kind, metadata }: KubeObject): KubeObject | undefined {
    return this.#deps.cluster.cache(kind).get(metadata.name, metadata.namespace)
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

  /** Gives the error when trying again later may help. What the API will never take is only told. */
  async #one(verb: Verb, object: KubeObject, signal: AbortSignal): Promise<ClusterApiError | undefined> {
    const { metrics, logger } = this.#deps
    const key = objectKeyText(object)
    try {
      await this.#write(verb, object, signal)
    } catch (error) {
      if (!(error instanceof ClusterApiError)) throw error
      metrics.writeFailures.inc({ verb, kind: object.kind })
      if (error.code !== 'Forbidden' && error.code !== 'Invalid') return error
      const text = `${verb}: ${error.message}`
      if (this.#told.get(key) !== text) logger.warn('object not written', { object: key, verb, reason: error.message })
      this.#told.set(key, text)
      return undefined
    }
    this.#told.delete(key)
    metrics.writes.inc({ verb, kind: object.kind })
    if (verb === 'apply') this.#remembered.set(key, { desired: object, present: undefined })
    if (verb === 'remove') this.#remembered.delete(key)
    return undefined
  }

  async #write(verb: Verb, object: KubeObject, signal: AbortSignal): Promise<void> {
    const { cluster } = this.#deps
    const { kind, metadata } = object
    if (verb === 'apply') await cluster.apply(object, signal)
    else if (verb === 'applyStatus') await cluster.applyStatus(object, signal)
    else await cluster.remove(kind, metadata.name, metadata.namespace, signal)
  }
}
