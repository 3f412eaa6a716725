/** What has changed since the mirror last looked: some services, or more than that. */
import type { ObjectChange } from '../../kubeapi/cluster-api.ts'
import { type ServiceKey, serviceKey } from '../../model/ids.ts'
import type { EndpointSlice, KubeObject } from '../../model/objects.ts'
import { LABEL_SERVICE_NAME } from '../../model/spec-constants.ts'
import type { ReplicaChange } from '../../protocol/replica/replica.ts'
import type { ReplicaView } from '../broker/broker-link.ts'

export interface Touched {
  /** Services, each with the objects of the local API that changed. */
  readonly keys: ReadonlyMap<ServiceKey, readonly KubeObject[]>
  /** Records, in the order in which they came. */
  readonly changes: readonly ReplicaChange[]
}

/** More changes than this are better looked at as a whole. */
const MAX_CHANGES = 2000
/**
 * The same of objects of the local API: while nothing is looked at, as before the broker's first snapshot, they pile
 * up.
 */
const MAX_NOTED = 20_000

export class DirtyServices {
  #all = true
  #keys = new Map<ServiceKey, KubeObject[]>()
  #changes: ReplicaChange[] = []
  /** Of the local API, since the last look. */
  #noted = 0
  #owners: Pick<ReplicaView, 'complete' | 'departed' | 'confirmed'> | undefined

  noteAll(): void {
    this.#all = true
    this.#noted = 0
    this.#keys.clear()
    this.#changes = []
  }

  noteRecords(changes: readonly ReplicaChange[]): void {
    if (this.#all) return
    if (this.#changes.length + changes.length > MAX_CHANGES) this.noteAll()
    else this.#changes.push(...changes)
  }

  noteServices(keys: Iterable<ServiceKey>): void {
    for (const key of keys) this.#note(key)
  }

  /**
   * Takes a change of a cache; undefined when it has become synced. False when it does not matter to what is mirrored.
   */
  noteObject(change: ObjectChange<KubeObject> | undefined): boolean {
    const object = change?.object
    if (object === undefined) this.noteAll()
    else if (object.kind === 'ServiceImport') this.#note(keyOf(object, object.metadata.name), object)
    else if (object.kind === 'EndpointSlice') return this.#noteSlice(change as ObjectChange<EndpointSlice>)
    else this.noteAll()
    return true
  }

  /**
   * What is to be looked at now; undefined for everything. Also when nothing is known to have changed: then drift may
   * have.
   */
  take({
    complete,
    departed,
    confirmed,
  }: Pick<ReplicaView, 'complete' | 'departed' | 'confirmed'>): Touched | undefined {
    const sameOwners =
      this.#owners?.confirmed === confirmed &&
      sameSet(this.#owners.complete, complete) &&
      sameSet(this.#owners.departed, departed)
    const nothing = this.#keys.size === 0 && this.#changes.length === 0
    const touched = this.#all || !sameOwners || nothing ? undefined : { keys: this.#keys, changes: this.#changes }
    this.#all = false
    this.#noted = 0
    this.#keys = new Map()
    this.#changes = []
    this.#owners = { complete: new Set(complete), departed: new Set(departed), confirmed }
    return touched
  }

  #noteSlice(change: ObjectChange<EndpointSlice>): boolean {
    const versions = [
      change.object,
      ...(change.type === 'set' && change.previous !== undefined ? [change.previous] : []),
    ]
    const keys = versions.flatMap((slice) => {
      const service = slice.metadata.labels?.[LABEL_SERVICE_NAME]
      return service === undefined ? [] : [keyOf(slice, service)]
    })
    for (const key of new Set(keys)) this.#note(key, change.object)
    return keys.length > 0
  }

  #note(key: ServiceKey, object?: KubeObject): void {
    if (this.#all) return
    this.#noted += 1
    if (this.#noted > MAX_NOTED) {
      this.noteAll()
      return
    }
    const objects = this.#keys.get(key) ?? []
    this.#keys.set(key, objects)
    if (object !== undefined) objects.push(object)
  }
}

function keyOf({ metadata }: KubeObject, service: string): ServiceKey {
  return serviceKey(metadata.namespace ?? '', service)
}

function sameSet(a: ReadonlySet<string> | undefined, b: ReadonlySet<string>): boolean {
  return a?.size === b.size && [...b].every((item) => a.has(item))
}
