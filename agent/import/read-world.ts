/** Reads what the mirror plans from, out of the replica and the local API. Changes nothing. */
import type { ClusterApi } from '../../kubeapi/cluster-api.ts'
import type { ServiceKey } from '../../model/ids.ts'
import { parsePrefix, type Prefix } from '../../model/addresses/ip.ts'
import { type OwnFacts, believedCluster } from '../../model/addresses/own-cluster.ts'
import {
  type ClusterSpec,
  type EndpointSlice,
  type KubeObject,
  MEMBERSHIP_NAME,
  type ServiceImport,
} from '../../model/objects.ts'
import type { ReplicaView } from '../broker/broker-link.ts'
import { objectKeyText } from '../object-key-text.ts'
import type { SharedFindings } from '../shared-findings.ts'
import type { ImportWorld } from './plan-imports.ts'
import type { MirroredObjects } from './plan-prune.ts'

export interface WorldReaderDeps {
  readonly api: ClusterApi
  readonly replica: ReplicaView
  readonly findings: SharedFindings
}

export interface WorldReaderInit {
  /** Id of this cluster. */
  readonly own: string
  /** What this cluster states about itself; undefined: as its own API has it. */
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

  /** Undefined while nothing believable is known of this cluster. `certain`: whose absent records are really gone. */
  world(certain: ReadonlySet<string>, expired: ReadonlySet<string>): ImportWorld | undefined {
    const { api, replica, findings } = this.#deps
    const clusters = api.cache('Cluster')
    const membership = api.cache('Membership').get(MEMBERSHIP_NAME)?.spec
    const local = clusters.get(this.#own)?.spec
    const ownFacts = { stated: this.#facts, local, globalRange: membership?.globalRange }
    // Where somebody took it away, the broker's record of this cluster brings it back, as far as it can be believed.
    const ownSpec = local ?? believedCluster(this.#ownRecord(), { id: this.#own, ...ownFacts }).spec
    if (ownSpec === undefined) return undefined
    const live = api
      .cache('Namespace')
      .list()
      .filter(({ metadata, status }) => metadata.deletionTimestamp === undefined && status?.phase !== 'Terminating')
    return {
      own: this.#own,
      ownSpec,
      ownFacts,
      records: replica.records(),
      certain,
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

  /** As the local API has it. */
  serviceImport(key: ServiceKey): ServiceImport | undefined {
    const slash = key.indexOf('/')
    return this.#deps.api.cache('ServiceImport').get(key.slice(slash + 1), key.slice(0, slash))
  }

  /** All that may be mirrored, and what users made of the same kinds. */
  mirrored(): MirroredObjects {
    const { api } = this.#deps
    return {
      serviceImports: api.cache('ServiceImport').list(),
      slices: api.cache('EndpointSlice').list(),
      clusters: api.cache('Cluster').list(),
      endpoints: api.cache('Endpoint').list(),
    }
  }

  /** What there is of some services: their ServiceImports, and the slices among `candidates`. */
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

  #ownRecord(): ClusterSpec | undefined {
    for (const { key, body } of this.#deps.replica.records()) {
      if (key.cluster === this.#own && body.kind === 'Cluster' && body.spec.id === this.#own) return body.spec
    }
    return undefined
  }

  /** The same object while the text is the same: the plan's memory goes by identity. */
  #clustersetIpRange(): Prefix | undefined {
    const text = this.#deps.api.cache('Membership').get(MEMBERSHIP_NAME)?.spec.clustersetIpRange
    if (text === undefined || text === '') return undefined
    if (this.#range?.text !== text) this.#range = { text, prefix: parsePrefix(text, 'clustersetIpRange') }
    return this.#range.prefix
  }
}
