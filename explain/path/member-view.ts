/** What is known of one member for one call: its facts, its findings, and the objects that facts do not carry. Pure. */
import {
  type AccessPolicy,
  type ClusterAccessPolicy,
  type ClusterTrafficPolicy,
  type EndpointSlice,
  LABEL_K8S_SERVICE_NAME,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  type Namespace,
  type Pod,
  type Service,
  type TrafficPolicy,
  serviceKey,
} from '../../model/model.ts'
import { memberFindings } from '../explain.ts'
import {
  type FactKind,
  type FactObjects,
  type Finding,
  type Seen,
  type Subject,
  type World,
  rankFindings,
  readFacts,
  worldOf,
} from '../facts/facts.ts'
import type { Station } from './document.ts'
import { type Effect, onPath } from './reasons-on-path.ts'

/**
 * Whole objects, as the driver read them. A kind that could not be asked for is absent. Slices, pods and Services may
 * be those that the call concerns alone.
 */
export interface PathObjects {
  readonly EndpointSlice?: readonly EndpointSlice[]
  readonly Service?: readonly Service[]
  readonly Pod?: readonly Pod[]
  readonly Namespace?: readonly Namespace[]
  readonly AccessPolicy?: readonly AccessPolicy[]
  readonly ClusterAccessPolicy?: readonly ClusterAccessPolicy[]
  readonly TrafficPolicy?: readonly TrafficPolicy[]
  readonly ClusterTrafficPolicy?: readonly ClusterTrafficPolicy[]
}

/** A member as a command gathered it. */
export interface PathSide {
  /** What the command calls it, such as `--to-context paris`. */
  readonly title?: string
  /** A FactSet, or the parsed content of a file. */
  readonly facts: unknown
  readonly objects?: PathObjects
}

/** The objects of a way that findings may be about. */
export interface Scope {
  /** Nodes of the member whose findings are looked at. */
  readonly nodes?: readonly string[]
  /** The other cluster of the way. */
  readonly cluster?: string
  readonly service?: { readonly namespace: string; readonly name: string }
  /** The namespace of the caller. */
  readonly namespace?: string | undefined
}

export interface StationFindings {
  readonly breaks: readonly Finding[]
  readonly may: readonly Finding[]
  readonly why: readonly Finding[]
  readonly notes: readonly Finding[]
}

export class MemberView {
  readonly world: World
  readonly objects: PathObjects
  readonly self: string
  /** False for facts alone, and bundles of earlier releases: their slices have no addresses. */
  readonly hasAddresses: boolean
  readonly #isFar: boolean
  readonly #byStation = new Map<Station, (readonly [Finding, Effect, boolean])[]>()
  readonly #slices = new Map<string, EndpointSlice[]>()

  constructor({ facts, objects = {} }: PathSide, isFar: boolean) {
    this.world = worldOf(readFacts(facts))
    this.objects = named(objects)
    this.self = this.world.self ?? '-'
    this.#isFar = isFar
    this.hasAddresses = this.objects.EndpointSlice !== undefined
    for (const finding of memberFindings(this.world)) this.add(finding)
    for (const slice of this.objects.EndpointSlice ?? sparseSlices(this.world)) this.#keep(slice)
  }

  /** Adds what only a comparison of members shows. */
  add(finding: Finding): void {
    const row = onPath(finding, this.#isFar)
    for (const station of row?.at ?? []) {
      const known = this.#byStation.get(station)
      const entry = [finding, row?.effect ?? 'note', row?.onReturn === true] as const
      if (known === undefined) this.#byStation.set(station, [entry])
      else known.push(entry)
    }
  }

  #keep(slice: EndpointSlice): void {
    const { namespace = '', labels = {} } = slice.metadata
    const name = labels[LABEL_SERVICE_NAME] ?? labels[LABEL_K8S_SERVICE_NAME]
    if (name === undefined) return
    const key = serviceKey(namespace, name)
    const known = this.#slices.get(key)
    if (known === undefined) this.#slices.set(key, [slice])
    // A slice may be read twice, by either of its labels.
    else if (!known.some(({ metadata }) => metadata.name === slice.metadata.name)) known.push(slice)
  }

  /** Imported slices of a service, or with `own` those of the Service itself. */
  slicesOf({ namespace, name }: { readonly namespace: string; readonly name: string }, own = false): EndpointSlice[] {
    const all = this.#slices.get(serviceKey(namespace, name)) ?? []
    return all.filter(({ metadata: { labels = {} } }) => (labels[LABEL_SOURCE_CLUSTER] === undefined) === own)
  }

  /** All slices, by service. */
  slices(): IterableIterator<readonly EndpointSlice[]> {
    return this.#slices.values()
  }

  list<K extends FactKind>(kind: K): readonly FactObjects[K][] | undefined {
    return this.seen(kind)?.map(({ object }) => object)
  }

  seen<K extends FactKind>(kind: K): readonly Seen<FactObjects[K]>[] | undefined {
    return this.world.objects[kind]
  }

  find<K extends FactKind>(kind: K, name: string, namespace?: string): Seen<FactObjects[K]> | undefined {
    return this.seen(kind)?.find(({ object }) => {
      const { metadata } = object as { readonly metadata: { readonly name: string; readonly namespace?: string } }
      return metadata.name === name && (namespace === undefined || metadata.namespace === namespace)
    })
  }

  cluster(id: string): Seen<FactObjects['Cluster']> | undefined {
    return this.seen('Cluster')?.find(({ object }) => object.spec.id === id)
  }

  /** Seconds since an RFC 3339 time, by the clocks of the member. Never negative. */
  ageOf(at: string | undefined): number {
    const ms = this.world.nowMs - Date.parse(at ?? '')
    return Number.isNaN(ms) ? 0 : Math.max(0, Math.floor(ms / 1000))
  }

  /** Why a kind could not be read; undefined if it was. */
  unansweredOf(kind: string): string | undefined {
    const found = this.world.unanswered.find(({ what }) => what === kind)
    return found === undefined ? undefined : `${kind}: ${found.message} (${found.reason})`
  }

  findingsAt(station: Station, scope: Scope, onReturn = false): StationFindings {
    const all = (this.#byStation.get(station) ?? []).filter(
      ([finding, , back]) => back === onReturn && this.#concerns(finding.subject, scope),
    )
    const of = (effect: Effect): Finding[] => all.flatMap(([finding, one]) => (one === effect ? [finding] : []))
    return { breaks: of('breaks'), may: of('may'), why: of('why'), notes: of('note') }
  }

  #concerns({ kind, name, namespace }: Subject, { nodes = [], cluster, service, namespace: place }: Scope): boolean {
    switch (kind) {
      case 'Node':
      case 'Gateway':
      case 'RouteAgent':
        return nodes.includes(name)
      case 'Cluster':
        return name === this.self || name === cluster
      case 'Link':
        return cluster !== undefined && isLinkOf(name, cluster, nodes)
      case 'Endpoint':
        return cluster !== undefined && name.startsWith(`${cluster}.`)
      case 'Service':
      case 'ServiceExport':
      case 'ServiceImport':
        if (name === 'sealane-dns') return true
        return service !== undefined && name === service.name && namespace === service.namespace
      case 'NetworkPolicy':
        return namespace !== undefined && namespace === place
      case 'Namespace':
        return name === service?.namespace
      case 'Deployment':
        return name === 'sealane-dns'
      case 'TrafficPolicy':
        return namespace === service?.namespace
      case 'ClusterTrafficPolicy':
      case 'Membership':
      case 'DnsServer':
      case 'Resolver':
        return true
      default:
        return false
    }
  }
}

/** The objects that have a name. The content of each is checked where it is used. */
function named(objects: PathObjects): PathObjects {
  const kept = Object.entries(objects).flatMap(([kind, items]: [string, unknown]) => {
    return Array.isArray(items) ? [[kind, items.filter(hasName)] as const] : []
  })
  return Object.fromEntries(kept)
}

function hasName(item: unknown): boolean {
  const { metadata } = (item ?? {}) as { readonly metadata?: { readonly name?: unknown } | null }
  return typeof metadata?.name === 'string'
}

/** `gw0 lane 0 to paris lane 1`, or `milano and paris` for what a comparison shows. */
function isLinkOf(name: string, cluster: string, nodes: readonly string[]): boolean {
  if (name.split(' and ').includes(cluster)) return true
  return name.includes(` to ${cluster} lane `) && nodes.some((node) => name.startsWith(`${node} lane `))
}

/** The cause of all of them, as `diagnose` ranks it. */
export function rootOf(
  findings: readonly Finding[],
  atSite: boolean,
): ReturnType<typeof rankFindings>[number] | undefined {
  return rankFindings(findings, atSite)[0]
}

/** Facts keep of a slice how many endpoints are ready: each gets a text of its own, which counts as an address. */
function sparseSlices({ objects }: World): readonly EndpointSlice[] {
  return (objects.EndpointSlice ?? []).map(({ object }) => ({
    ...object,
    addressType: 'IPv4',
    endpoints: (object.endpoints ?? []).map((endpoint, i) => ({
      ...endpoint,
      addresses: [`${object.metadata.name} ${i}`],
    })),
  }))
}
