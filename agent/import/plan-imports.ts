/**
 * Plans everything that this cluster's API should hold about the clusterset, from the broker's records, and which of the
 * mirrored objects are removed. Pure.
 */
import {
  type NeededRange,
  type OwnFacts,
  type Prefix,
  believedCluster,
  classifyAddress,
  parseAddress,
  podFamilies,
} from '../../model/addresses/addresses.ts'
import {
  ANNOTATION_KNOWN_MEMBERS,
  APP_MANAGED_BY_SEALANE,
  type Cluster,
  type ClusterSpec,
  type Endpoint,
  type EndpointCandidate,
  type EndpointSlice,
  type KubeObject,
  LABEL_APP_MANAGED_BY,
  LABEL_MANAGED_BY,
  LABEL_SOURCE_CLUSTER,
  MANAGED_BY_SEALANE,
  type ServiceImport,
  type ServiceKey,
  type StoredRecord,
  endpointName,
  ANNOTATION_TOPOLOGY,
  ANNOTATION_VIA,
  MAX_TOPOLOGY_TEXT,
  type Topology,
  knownMembersText,
  topologyText,
  objectKeyText,
} from '../../model/model.ts'
import { RECORD_FORMS, formProblem } from '../../model/grammar/grammar.ts'
import { ANNOTATION_PUBLISHED_AT, publishedAt } from '../../model/lanes/lanes.ts'
import { type ConflictFinding, isDerived } from '../../model/services/services.ts'
import { KeyedMemo, ValueMap } from '../../reconcile/reconcile.ts'
import { clusterProblem } from './check-record.ts'
import {
  type ClustersetView,
  type Dropped,
  type IsLinked,
  type OwnExports,
  RecordValidator,
  type RecordValidatorInit,
  type RemoteEndpoint,
  type ServiceFacts,
  viewClusterset,
  withOwnExport,
} from './clusterset-records.ts'
import { type ServicePlan, type SliceMemo, planService } from './plan-service.ts'

// Plans the Clusters and gateways of the clusterset as objects of this cluster. Pure.

const CANDIDATE = RECORD_FORMS.Endpoint.fields.spec.fields.candidates.item
const LABELS = { [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE }

/** `notes` are the annotations of this cluster's own Cluster. The others have none. */
function clusterObject(spec: ClusterSpec, notes: Readonly<Record<string, string>> | undefined): Cluster {
  const metadata = { name: spec.id, labels: LABELS, ...(notes === undefined ? {} : { annotations: notes }) }
  return { apiVersion: 'sealane.io/v1alpha1', kind: 'Cluster', metadata, spec }
}

type EndpointWorld = Pick<ImportWorld, 'own' | 'via'>

/**
 * Plans the Endpoint objects of the other clusters. If two records claim one name, the first record keeps it. One that
 * only relays may reach has no candidates, so that a gateway of an earlier release does not call it directly either.
 */
function planEndpoints(world: EndpointWorld, endpoints: readonly RemoteEndpoint[], dropped: Dropped[]): Endpoint[] {
  const planned = new Map<string, Endpoint>()
  const remote = endpoints.filter(({ cluster }) => cluster !== world.own)
  for (const one of remote) {
    const name = nameOf(one)
    if (planned.has(name)) {
      dropped.push({
        what: `${one.cluster}/Endpoint/${one.recordName}`,
        reason: 'NameTaken',
        message: `the name ${name} is in use`,
      })
      continue
    }
    const candidates = one.spec.candidates.filter((candidate) => isUsable(candidate, one, dropped))
    const via = world.via?.(one.cluster)
    const isWhole = via === undefined && candidates.length === one.spec.candidates.length
    const spec = isWhole ? one.spec : { ...one.spec, candidates: via === undefined ? candidates : [] }
    const notes = via === undefined ? {} : { [ANNOTATION_VIA]: via.join() }
    const metadata = { name, labels: LABELS, annotations: { ...publishedAt(one.createdAtMs), ...notes } }
    planned.set(name, { apiVersion: 'sealane.io/v1alpha1', kind: 'Endpoint', metadata, spec })
  }
  return [...planned.values()].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
}

function nameOf({ spec }: RemoteEndpoint): string {
  return endpointName(spec.cluster, spec.node, spec.lane)
}

/** An unusable address excludes its candidate, not the gateway. */
function isUsable(candidate: EndpointCandidate, one: RemoteEndpoint, dropped: Dropped[]): boolean {
  const wrong = formProblem(CANDIDATE, candidate)
  const kind = wrong === undefined ? classifyAddress(parseAddress(candidate.address)) : 'malformed'
  if (kind === 'usable') return true
  const message =
    wrong === undefined || wrong.field === 'address'
      ? `candidate ${JSON.stringify(candidate.address)} is a ${kind} address`
      : `candidate ${JSON.stringify(candidate.address)}: ${wrong.field} ${wrong.problem}`
  dropped.push({ what: `${one.cluster}/Endpoint/${one.recordName}`, reason: 'AddressNotReachable', message })
  return false
}

export interface ImportWorld extends OwnExports {
  readonly clusterset?: string | undefined
  /** This cluster's facts, from its own API. */
  readonly ownSpec: ClusterSpec
  /** The facts that the broker's record of this cluster is compared with. */
  readonly ownFacts: Pick<OwnFacts, 'stated' | 'local' | 'globalRange'>
  readonly records: Iterable<StoredRecord>
  /** Owners whose missing records are known to be withdrawn. '' stands for the broker itself. */
  readonly certain: ReadonlySet<string>
  /** Whether the replica holds all records of a namespace, so that a missing record counts. */
  readonly holds: (namespace: string) => boolean
  /** Namespaces that exist here and are not terminating. */
  readonly namespaces: ReadonlySet<string>
  /** The ServiceImport that the local API has now. */
  readonly serviceImport: (key: ServiceKey) => ServiceImport | undefined
  /** Facts from the local API, for clusters that the broker does not show, or not yet. */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  readonly clustersetIpRange: Prefix | undefined
  /** Ranges that no other cluster's pods may have here. */
  readonly needed: readonly NeededRange[]
  /** Clusters that are treated as dead (plan-contact.ts). */
  readonly expired: ReadonlySet<string>
  /** Absent: this cluster links with all. */
  readonly isLinked?: IsLinked
  /** Members with which this cluster does not link, sorted. */
  readonly unlinked?: readonly string[]
  /** Absent: all clusters link. */
  readonly topology?: Topology | undefined
  /** Members whose relays alone may carry links with a cluster. Undefined: they may have any way. */
  readonly via?: (cluster: string) => readonly string[] | undefined
}

export interface ImportPlan {
  /** Objects by objectKeyText(). */
  readonly objects: ValueMap<string, KubeObject>
  /** Services by objectKeyText() of the ServiceImport. */
  readonly services: ValueMap<string, ServicePlan>
  /** Conflicts that this cluster's own exports take part in. */
  readonly ownFindings: ValueMap<ServiceKey, ConflictFinding>
  readonly dropped: readonly Dropped[]
  readonly basis: PlanBasis
}

/** The common input of all service plans. */
export interface PlanBasis {
  readonly view: ClustersetView
  /** Clusters whose addresses can be used. */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  /** What is left out apart from services. */
  readonly others: readonly Dropped[]
  /** Services with parts that are left out. */
  readonly dropping: ValueMap<ServiceKey, readonly Dropped[]>
}

export interface ImportMemory {
  readonly validate: RecordValidator
  readonly services: KeyedMemo<ServicePlan>
  /** The slice caches by service. */
  readonly slices: Map<ServiceKey, SliceMemo>
  readonly clusters: KeyedMemo<KubeObject>
}

export function newImportMemory(init: RecordValidatorInit): ImportMemory {
  return {
    validate: new RecordValidator(init),
    services: new KeyedMemo(),
    slices: new Map(),
    clusters: new KeyedMemo(),
  }
}

/** Takes the world and, to save work, the cache of the previous round. */
export function planImports(world: ImportWorld, memory: ImportMemory): ImportPlan {
  const view = viewClusterset(world.records, memory.validate, world.isLinked)
  const others = [...view.dropped]
  const clusters = usableClusters(world, view, others)
  const changes = noChanges()
  const add = (object: KubeObject): void => void changes.objects.set(objectKeyText(object), object)
  for (const [id, spec] of [...clusters].sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (!view.clusters.has(id)) continue
    const notes = id === world.own ? ownNotes(world, view, others) : undefined
    const inputs = [spec, ...Object.values(notes ?? {})]
    add(memory.clusters.get(`Cluster/${id}`, inputs, () => clusterObject(spec, notes)))
  }
  for (const endpoint of planEndpoints(world, view.endpoints, others)) {
    const { name, annotations } = endpoint.metadata
    const inputs = [endpoint.spec, annotations?.[ANNOTATION_PUBLISHED_AT], annotations?.[ANNOTATION_VIA]]
    add(memory.clusters.get(`Endpoint/${name}`, inputs, () => endpoint))
  }
  for (const key of [...view.services.keys()].sort()) planOne(world, memory, { view, clusters }, { key, changes })
  for (const key of memory.slices.keys()) if (!changes.services.has(`ServiceImport/${key}`)) memory.slices.delete(key)
  memory.services.endRound()
  memory.clusters.endRound()
  return changed(NOTHING, { view, clusters, others }, changes)
}

/**
 * Plans some services again from a view in which nothing else has changed. The result is valid only if nothing has
 * changed but these services, their facts in the view, and their objects in the local API. The cost is that of the
 * changed services.
 */
export function replanServices(
  world: ImportWorld,
  memory: ImportMemory,
  before: ImportPlan,
  { view, touched }: { readonly view: ClustersetView; readonly touched: Iterable<ServiceKey> },
): ImportPlan {
  const basis = { ...before.basis, view }
  const changes = noChanges()
  for (const key of touched) {
    for (const object of objectsOf(before.services.get(`ServiceImport/${key}`)))
      changes.objects.set(objectKeyText(object), undefined)
    changes.services.set(`ServiceImport/${key}`, undefined)
    changes.ownFindings.set(key, undefined)
    changes.dropping.set(key, undefined)
    planOne(world, memory, basis, { key, changes })
  }
  return changed(before, basis, changes)
}

/** The changes to the maps of a plan: values to set, and undefined for keys to remove. */
interface PlanChanges {
  readonly objects: Map<string, KubeObject | undefined>
  readonly services: Map<string, ServicePlan | undefined>
  readonly ownFindings: Map<ServiceKey, ConflictFinding | undefined>
  readonly dropping: Map<ServiceKey, readonly Dropped[] | undefined>
}

function noChanges(): PlanChanges {
  return { objects: new Map(), services: new Map(), ownFindings: new Map(), dropping: new Map() }
}

type PlanMaps = Pick<ImportPlan, 'objects' | 'services' | 'ownFindings'> & {
  readonly basis: Pick<PlanBasis, 'dropping'>
}

const NOTHING: PlanMaps = {
  objects: new ValueMap(),
  services: new ValueMap(),
  ownFindings: new ValueMap(),
  basis: { dropping: new ValueMap() },
}

function changed(before: PlanMaps, basis: Omit<PlanBasis, 'dropping'>, changes: PlanChanges): ImportPlan {
  const dropping = before.basis.dropping.with(changes.dropping)
  return {
    objects: before.objects.with(changes.objects),
    services: before.services.with(changes.services),
    ownFindings: before.ownFindings.with(changes.ownFindings),
    dropped: [...basis.others, ...[...dropping.values()].flat()],
    basis: { ...basis, dropping },
  }
}

/** Slices come before the ServiceImport, so that a client that finds the service finds its endpoints. */
export function objectsOf(plan: ServicePlan | undefined): KubeObject[] {
  if (plan === undefined) return []
  return plan.serviceImport === undefined ? [...plan.slices] : [...plan.slices, plan.serviceImport]
}

/** Adds the plan of one service to the changes, if there is anything to plan. */
function planOne(
  world: ImportWorld,
  memory: ImportMemory,
  { view, clusters }: Pick<PlanBasis, 'view' | 'clusters'>,
  { key, changes }: { readonly key: ServiceKey; readonly changes: PlanChanges },
): void {
  const reported = view.services.get(key)
  if (reported === undefined || reported.exports.length === 0 || !world.namespaces.has(namespaceOf(key))) return
  const { facts, dropped } = withOwnExport(key, reported, world)
  if (dropped.length > 0) changes.dropping.set(key, dropped)
  if (facts.exports.length === 0) return
  const service = planRemembered(world, memory, { key, facts, clusters })
  changes.services.set(`ServiceImport/${key}`, service)
  for (const object of objectsOf(service)) {
    const text = objectKeyText(object)
    // The deletion moves the key to the end, since a Map keeps the position of a key that it already has.
    changes.objects.delete(text)
    changes.objects.set(text, object)
  }
  if (service.dropped.length > 0) changes.dropping.set(key, [...dropped, ...service.dropped])
  if (service.ownFinding !== undefined) changes.ownFindings.set(key, service.ownFinding)
}

/** What this cluster's own Cluster states for the other parts. */
function ownNotes(
  { unlinked, topology }: ImportWorld,
  view: ClustersetView,
  others: readonly Dropped[],
): Readonly<Record<string, string>> {
  const [members, text] = [membersText(view, others, unlinked), topology === undefined ? '' : topologyText(topology)]
  return {
    ...(members === '' ? {} : { [ANNOTATION_KNOWN_MEMBERS]: members }),
    ...(text === '' || text.length > MAX_TOPOLOGY_TEXT ? {} : { [ANNOTATION_TOPOLOGY]: text }),
  }
}

/** The members that the broker has reported, and those that the topology keeps from this cluster. */
function membersText(view: ClustersetView, others: readonly Dropped[], unlinked: readonly string[] = []): string {
  const reasons = new Map(reasonsOf(others))
  for (const id of unlinked) reasons.set(id, 'NotLinkedByTopology')
  return knownMembersText(new Set([...view.clusters.keys(), ...unlinked]), reasons)
}

/** Maps the id of each cluster that is not used here to the reason. */
function reasonsOf(dropped: readonly Dropped[]): ReadonlyMap<string, string> {
  const clusters = dropped.filter(({ what }) => what.endsWith('/Cluster'))
  return new Map(clusters.map(({ what, reason }) => [what.slice(0, what.indexOf('/')), reason]))
}

interface ServiceAtHand {
  readonly key: ServiceKey
  readonly facts: ServiceFacts
  readonly clusters: ReadonlyMap<string, ClusterSpec>
}

function planRemembered(
  world: ImportWorld,
  memory: ImportMemory,
  { key, facts, clusters }: ServiceAtHand,
): ServicePlan {
  const present = world.serviceImport(key)
  const ownSlices = world.ownExport(key)?.slices
  const held = present !== undefined && isHeld(world, present, facts) ? present.spec : undefined
  // Once the broker has all of its own records, a missing address means that there is none.
  const previousIps = world.certain.has('') && world.holds(namespaceOf(key)) ? [] : (present?.spec.ips ?? [])
  const { own, clusterset, clustersetIpRange, expired } = world
  const specs = facts.exports.map((record) => clusters.get(record.key.cluster))
  const dead = facts.exports.map((record) => expired.has(record.key.cluster))
  const { exports, slices, ips } = facts
  const ownFamilies = podFamilies(world.ownSpec)
  const ownPods = world.ownSpec.podCIDRs
  const ours = [own, clusterset, clusters.get(own)?.properties, ownSlices, ownFamilies, ownPods]
  const inputs = [exports, slices, ips, ours, specs, held, previousIps, clustersetIpRange, dead]
  return memory.services.get(key, inputs, () => {
    let memo = memory.slices.get(key)
    if (memo === undefined) memory.slices.set(key, (memo = new KeyedMemo()))
    const known = { held, previousIps, clustersetIpRange, expired }
    return planService({ key, facts, own, clusterset, ownFamilies, ownPods, ownSlices, clusters, ...known }, memo)
  })
}

/** Whether a cluster that was part of the service is missing without being known to have withdrawn. */
function isHeld(world: ImportWorld, present: ServiceImport, facts: ServiceFacts): boolean {
  const exporting = new Set<string>(facts.exports.map(({ key }) => key.cluster))
  const isWhole = world.holds(present.metadata.namespace ?? '')
  const isCertain = (id: string): boolean => (isWhole && world.certain.has(id)) || (id === world.own && world.ownKnown)
  return (present.status?.clusters ?? []).some(({ cluster }) => !exporting.has(cluster) && !isCertain(cluster))
}

/**
 * Clusters whose addresses can be used: the broker's facts, else those known from before. The own cluster uses its own
 * facts.
 */
function usableClusters(world: ImportWorld, view: ClustersetView, dropped: Dropped[]): Map<string, ClusterSpec> {
  const { own, ownFacts, ownSpec } = world
  const usable = new Map<string, ClusterSpec>()
  for (const [id, spec] of [...world.clusters, ...view.clusters]) {
    if (id === own || !view.isLinked(id)) continue
    const problem = clusterProblem(spec, ownSpec, world.needed)
    if (problem === undefined) usable.set(id, spec)
    // The facts that were mirrored before are outdated.
    else usable.delete(id)
    if (problem !== undefined) dropped.push({ what: `${id}/Cluster`, ...problem })
  }
  const { spec, problem } = believedCluster(view.clusters.get(own), { id: own, ...ownFacts })
  // The broker may not have received the current facts yet.
  if (problem !== undefined)
    dropped.push({ what: `${own}/Cluster`, reason: 'OwnFactsDiffer', message: problem, settles: true })
  if (spec !== undefined) usable.set(own, spec)
  return usable
}

function namespaceOf(key: ServiceKey): string {
  return key.slice(0, key.indexOf('/'))
}

// Plans the removals: only mirrored objects that are known to be withdrawn. An object whose record is only missing,
// because the broker has not shown it, stays.

/** Objects of the local API. Those that the mirror did not make are left alone. */
export interface MirroredObjects {
  readonly serviceImports: readonly ServiceImport[]
  readonly slices: readonly EndpointSlice[]
  readonly clusters: readonly Cluster[]
  readonly endpoints: readonly Endpoint[]
}

export interface PruneWorld extends MirroredObjects {
  readonly own: string
  readonly desired: ReadonlyMap<string, unknown>
  /** ServiceImports that stay although they are not desired, by objectKeyText(). */
  readonly kept: ReadonlyMap<string, unknown>
  /** Owners whose missing records are known to be withdrawn. */
  readonly certain: ReadonlySet<string>
  /** Whether the replica holds all records of a namespace, so that a missing record counts. */
  readonly holds: (namespace: string) => boolean
  /** Clusters that are treated as dead. Their slices are removed, but their exports stay. */
  readonly expired: ReadonlySet<string>
  /**
   * Clusters whose pods have addresses that this cluster requires. Their routes must go even if other records announce
   * them.
   */
  readonly harmful: ReadonlySet<string>
  /** Namespaces that exist here and are not terminating. Objects mirrored into any other namespace are removed. */
  readonly namespaces: ReadonlySet<string>
}

/** The objects to remove, ServiceImports first: a client that no longer finds the service asks for no endpoint. */
export function planPrune(world: PruneWorld): KubeObject[] {
  const gone = (cluster: string | undefined): boolean => cluster !== undefined && world.certain.has(cluster)
  const known = world.clusters.map(({ spec }) => spec.id)
  const mirrored = ownedByMirror(world)
  const homeless = ({ metadata }: KubeObject): boolean => !world.namespaces.has(metadata.namespace ?? '')
  const imports = mirrored.serviceImports.filter((object) => {
    if (homeless(object)) return true
    if (world.kept.has(objectKeyText(object))) return false
    // A ServiceImport that was written without its status may belong to any cluster.
    const clusters = object.status?.clusters?.map(({ cluster }) => cluster) ?? known
    // Nothing is certain yet, since the broker has not reported.
    if (world.certain.size === 0) return false
    return world.holds(object.metadata.namespace ?? '') && clusters.every(gone)
  })
  const slices = mirrored.slices.filter((object) => {
    const source = object.metadata.labels?.[LABEL_SOURCE_CLUSTER]
    const isGone = gone(source) && world.holds(object.metadata.namespace ?? '')
    return homeless(object) || isGone || (source !== undefined && world.expired.has(source))
  })
  const endpoints = mirrored.endpoints.filter(({ spec }) => gone(spec.cluster))
  const clusters = mirrored.clusters.filter(({ spec }) => gone(spec.id) || world.harmful.has(spec.id))
  return [...imports, ...slices, ...endpoints, ...clusters].filter(
    (object) => !world.desired.has(objectKeyText(object)),
  )
}

/** Everything that the mirror may have made here, which is removed when the cluster leaves the clusterset. */
export function ownedByMirror(world: MirroredObjects & { readonly own: string }): MirroredObjects {
  return {
    serviceImports: world.serviceImports.filter(
      ({ metadata }) => metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE,
    ),
    // Derived slices follow from imported ones, and have a loop of their own.
    slices: world.slices.filter(
      (slice) => slice.metadata.labels?.[LABEL_MANAGED_BY] === MANAGED_BY_SEALANE && !isDerived(slice),
    ),
    clusters: world.clusters.filter(({ spec }) => spec.id !== world.own),
    endpoints: world.endpoints.filter(({ spec }) => spec.cluster !== world.own),
  }
}
