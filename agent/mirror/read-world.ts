/** Reads the input of the mirror's plan from the replica and the local API. Changes nothing. */
import type { ClusterApi, ObjectChange } from '../../kubeapi/kubeapi.ts'
import { type OwnFacts, type Prefix, believedCluster, parsePrefix } from '../../model/addresses/addresses.ts'
import {
  type ClusterSpec,
  type EndpointSlice,
  type KubeObject,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  MEMBERSHIP_NAME,
  type ServiceImport,
  type ServiceKey,
  type Topology,
  objectKeyText,
  serviceKey,
} from '../../model/model.ts'
import { type LinkEnd, links } from '../../model/lanes/lanes.ts'
import type { ReplicaChange } from '../../protocol/replica/replica.ts'
import type { ImportWorld, IsLinked, MirroredObjects } from '../import/import.ts'
import type { ReplicaView } from '../link/link.ts'
import type { SharedFindings } from '../loop/loop.ts'

export interface WorldReaderDeps {
  readonly api: ClusterApi
  readonly replica: ReplicaView
  readonly findings: SharedFindings
}

export interface WorldReaderInit {
  /** Id of this cluster. */
  readonly own: string
  /** The facts that this cluster states about itself. If undefined, those of its own API are used. */
  readonly facts: OwnFacts['stated']
}

export class WorldReader {
  readonly #deps: WorldReaderDeps
  readonly #own: string
  readonly #facts: OwnFacts['stated']
  #range: { readonly text: string; readonly prefix: Prefix } | undefined

  constructor(deps: WorldReaderDeps, { own, facts }: WorldReaderInit) {
    this.#deps = deps
    this.#own = own
    this.#facts = facts
  }

  /**
   * Undefined while no trustworthy facts of this cluster are known. `certain` lists the owners whose missing records
   * are known to be withdrawn.
   */
  world(certain: ReadonlySet<string>, expired: ReadonlySet<string>): ImportWorld | undefined {
    const { api, replica, findings } = this.#deps
    const clusters = api.cache('Cluster')
    const linked = this.#linked()
    const membership = api.cache('Membership').get(MEMBERSHIP_NAME)?.spec
    const local = clusters.get(this.#own)?.spec
    const ownFacts = { stated: this.#facts, local, globalRange: membership?.globalRange }
    // If the own Cluster was deleted, the trustworthy part of the broker's record restores it.
    const ownSpec = local ?? believedCluster(this.#ownRecord(), { id: this.#own, ...ownFacts }).spec
    if (ownSpec === undefined) return undefined
    const live = api
      .cache('Namespace')
      .list()
      .filter(({ metadata, status }) => metadata.deletionTimestamp === undefined && status?.phase !== 'Terminating')
    return {
      own: this.#own,
      clusterset: membership?.clusterset,
      ownSpec,
      ownFacts,
      records: replica.records(),
      // What belongs to a cluster with which this one does not link goes, as if the cluster had left.
      certain: certain.size === 0 ? certain : new Set([...certain, ...this.#foreign().filter((id) => !linked.is(id))]),
      isLinked: linked.is,
      unlinked: linked.unlinked,
      topology: linked.topology,
      ...(linked.via === undefined ? {} : { via: linked.via }),
      holds: (namespace) => replica.holds(namespace),
      namespaces: new Set(live.map(({ metadata }) => metadata.name)),
      ownKnown: findings.exportPlan !== undefined,
      ownExport: (key) => findings.exportPlan?.exports.get(key)?.exported,
      serviceImport: (key) => this.serviceImport(key),
      clusters: new Map(clusters.list().map(({ spec }) => [spec.id, spec])),
      clustersetIpRange: this.#clustersetIpRange(),
      needed: findings.needed,
      expired,
    }
  }

  /** The ServiceImport in the local API. */
  serviceImport(key: ServiceKey): ServiceImport | undefined {
    const slash = key.indexOf('/')
    return this.#deps.api.cache('ServiceImport').get(key.slice(slash + 1), key.slice(0, slash))
  }

  /** All objects that may be mirrored, including those of the same kinds that users made. */
  mirrored(): MirroredObjects {
    const { api } = this.#deps
    return {
      serviceImports: api.cache('ServiceImport').list(),
      slices: api.cache('EndpointSlice').list(),
      clusters: api.cache('Cluster').list(),
      endpoints: api.cache('Endpoint').list(),
    }
  }

  /** The objects of some services: their ServiceImports, and the slices among `candidates`. */
  mirroredOf(keys: readonly ServiceKey[], candidates: readonly KubeObject[]): MirroredObjects {
    const { api } = this.#deps
    const slices = new Map<string, EndpointSlice>()
    for (const { kind, metadata } of candidates) {
      const found = kind === 'EndpointSlice' ? api.cache(kind).get(metadata.name, metadata.namespace) : undefined
      if (found !== undefined) slices.set(objectKeyText(found), found)
    }
    return {
      serviceImports: keys.flatMap((key) => this.serviceImport(key) ?? []),
      slices: [...slices.values()],
      clusters: api.cache('Cluster').list(),
      endpoints: [],
    }
  }

  /**
   * By the topology that the broker stated last, which the replica keeps while the broker is away. Labels are those of
   * the broker's records, else of what is known here: a cluster that the broker has not shown yet is not taken for
   * another one.
   */
  #linked(): Pick<ImportWorld, 'topology' | 'via'> & { readonly is: IsLinked; readonly unlinked: readonly string[] } {
    const { api, replica } = this.#deps
    let topology: Topology | undefined
    const specs = new Map<string, Pick<ClusterSpec, 'labels'>>()
    for (const { spec } of api.cache('Cluster').list()) specs.set(spec.id, spec)
    for (const { key, body } of replica.records()) {
      if (body.kind === 'Cluster' && body.spec.id === key.cluster) specs.set(key.cluster, body.spec)
      if (body.kind === 'Topology' && key.cluster === '') topology = body.topology
    }
    if (topology === undefined || topology.mode === 'full') return { is: () => true, unlinked: [] }
    const known = topology
    const end = (id: string): LinkEnd => ({ id, labels: specs.get(id)?.labels })
    const own = end(this.#own)
    const is = (id: string): boolean => links(known, own, end(id)).linked
    const via = (id: string): readonly string[] | undefined => {
      const answer = links(known, own, end(id))
      return answer.linked ? answer.via : undefined
    }
    const members = [...replica.complete].filter((id) => id !== '' && !replica.departed.has(id))
    return { is, unlinked: members.filter((id) => !is(id)).sort(), topology, via }
  }

  /** The clusters that objects of this cluster's API came from. */
  #foreign(): string[] {
    const { serviceImports, slices, clusters, endpoints } = this.mirrored()
    const ids = [
      ...clusters.map(({ spec }) => spec.id),
      ...endpoints.map(({ spec }) => spec.cluster),
      ...slices.flatMap(({ metadata }) => metadata.labels?.[LABEL_SOURCE_CLUSTER] ?? []),
      ...serviceImports.flatMap(({ status }) => status?.clusters?.map(({ cluster }) => cluster) ?? []),
    ]
    return [...new Set(ids)].filter((id) => id !== this.#own)
  }

  #ownRecord(): ClusterSpec | undefined {
    for (const { key, body } of this.#deps.replica.records()) {
      if (key.cluster === this.#own && body.kind === 'Cluster' && body.spec.id === this.#own) return body.spec
    }
    return undefined
  }

  /** Gives the same object while the text is unchanged, since the plan's cache compares by identity. */
  #clustersetIpRange(): Prefix | undefined {
    const text = this.#deps.api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clustersetIpRange
    if (text === undefined || text === '') return undefined
    if (this.#range?.text !== text) this.#range = { text, prefix: parsePrefix(text, 'clustersetIpRange') }
    return this.#range.prefix
  }
}

export interface Touched {
  /** The services, each with the objects of the local API that changed. */
  readonly keys: ReadonlyMap<ServiceKey, readonly KubeObject[]>
  /** The records, in the order in which they arrived. */
  readonly changes: readonly ReplicaChange[]
}

/** Above this number of changes, a round over everything is cheaper. */
const MAX_CHANGES = 2000
/**
 * The same limit for objects of the local API. Their changes accumulate while no round processes them, as before the
 * broker's first snapshot.
 */
const MAX_NOTED = 20_000

/** Collects what has changed since the mirror's last round: some services, or everything. */
export class DirtyServices {
  #all = true
  #keys = new Map<ServiceKey, KubeObject[]>()
  #changes: ReplicaChange[] = []
  /** The number of noted changes of the local API since the last round. */
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
   * Takes a change of a cache, or undefined if the cache has become synced. False if it does not concern mirrored
   * objects.
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
   * The changes to process now, or undefined for everything. If no change is known, it is everything, to find drift.
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
