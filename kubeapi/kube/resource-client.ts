/** The cache, the watch and the requests of one kind. */
import type { Kind, KubeObject } from '../../model/model.ts'
import { type CachedObject, KindObjects, cachedObject } from './kind-objects.ts'
import { KubeError } from './kube-error.ts'
import { KindWatch, type KindWatchDeps, type Selector } from './kind-watch.ts'
import { kindPath } from './kinds.ts'
import { objectKey, objectTitle } from '../driver/driver.ts'
import type { RawObject, Slimmer } from '../../model/schemas/schemas.ts'

export type ResourceClientDeps = Omit<KindWatchDeps<Kind>, 'objects'>

export class ResourceClient {
  readonly objects: KindObjects<Kind>
  readonly #deps: ResourceClientDeps
  readonly #watch: KindWatch<Kind>
  readonly #selector: Selector

  constructor(
    deps: ResourceClientDeps,
    init: { readonly kind: Kind; readonly selector: Selector; readonly slimmer?: Slimmer | undefined },
  ) {
    this.#deps = deps
    this.objects = new KindObjects(init.kind, init.slimmer)
    this.#watch = new KindWatch({ ...deps, objects: this.objects }, init.selector)
    this.#selector = init.selector
  }

  /** Why the kind cannot be watched at present. */
  get trouble(): string | undefined {
    return this.#watch.trouble
  }

  run(signal: AbortSignal): Promise<void> {
    return this.#watch.run(signal)
  }

  /** Returns what is known about an object; asks the server if the cache holds only some objects. */
  async holding(name: string, namespace: string | undefined, signal: AbortSignal): Promise<CachedObject | undefined> {
    const known = this.objects.holding(objectKey(name, namespace))
    if (known !== undefined || this.#shows(namespace)) return known
    return this.ask(name, namespace, signal)
  }

  /** Reads an object from the server; undefined if it does not exist. */
  async ask(name: string, namespace: string | undefined, signal: AbortSignal): Promise<CachedObject | undefined> {
    const raw = await this.#get(name, namespace, signal)
    return raw === undefined ? undefined : this.note(raw)
  }

  /** Like ask(), but returns the object. */
  async read(name: string, namespace: string | undefined, signal: AbortSignal): Promise<KubeObject | undefined> {
    const raw = await this.#get(name, namespace, signal)
    if (raw === undefined) return undefined
    this.note(raw)
    return this.objects.slim(raw)
  }

  async #get(name: string, namespace: string | undefined, signal: AbortSignal): Promise<RawObject | undefined> {
    const { kind } = this.objects
    try {
      const { body } = await this.#deps.http.ask<RawObject>(
        {
          verb: 'get',
          title: objectTitle(kind, name, namespace),
          method: 'GET',
          path: kindPath(kind, namespace, name),
        },
        signal,
      )
      return body
    } catch (error) {
      if (error instanceof KubeError && error.status === 404) return undefined
      throw error
    }
  }

  /** Takes the server's answer to a write. An object that the selector excludes is not cached. */
  note(raw: RawObject): CachedObject {
    const { name, namespace } = raw.metadata
    const known = this.objects.holding(objectKey(name, namespace)) !== undefined
    const taken = known || this.#shows(namespace) ? this.objects.takeOwn(raw) : undefined
    return taken ?? cachedObject(this.objects.kind, raw)
  }

  /** Whether the cache holds every object of this namespace. */
  #shows(namespace: string | undefined): boolean {
    const { labelSelector, fieldSelector, namespace: only } = this.#selector
    return labelSelector === undefined && fieldSelector === undefined && (only === undefined || only === namespace)
  }
}
