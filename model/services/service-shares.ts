/**
 * The shares of one imported service, from the objects of the importing cluster: what route agents, the agent, DNS and
 * the commands ask, so that all of them decide alike. Pure.
 */
import {
  type Cluster,
  type ClusterAccessPolicy,
  type EndpointSlice,
  type ImportPort,
  LABEL_SOURCE_CLUSTER,
  type Membership,
  type ObjectMeta,
  type ServiceImport,
  type SliceEndpoint,
} from '../model.ts'
import { accessInForce, accessProblem } from '../access/access.ts'
import { believedProperties } from './cluster-properties.ts'
import { type ExportingCluster, type SelectableCluster, type SharesPlan, planShares } from './plan-shares.ts'
import { isPortNumber, portId, servesAll, targetPorts } from './slice-ports.ts'
import { type AnyTrafficPolicy, type TrafficPolicies, policyInForce, trafficPolicyProblem } from './traffic-policies.ts'

/**
 * On a ServiceExport, "true": importers give the service of this cluster nothing new while another one is ready. "now":
 * they end open connections too.
 */
export const ANNOTATION_DRAIN = 'sealane.io/drain'
/** On the EndpointSlices of a cluster that drains this service: "true". */
export const ANNOTATION_DRAINED = 'sealane.io/drained'
/**
 * "true" for a drain "now": beside ANNOTATION_DRAINED, because readers of an earlier release know only "true" there, and
 * on all EndpointSlices of a cluster that is drained now, because a CRD of an earlier release drops Cluster.drainedNow.
 * Without either drain it says nothing.
 */
export const ANNOTATION_DRAINED_NOW = 'sealane.io/drained-now'

/**
 * On imported EndpointSlices: "true" if the nodes of their exporter drop packets of open connections once it offers the
 * service no more. Without it, nothing is ended: exporters and agents of earlier releases do not write it.
 */
export const ANNOTATION_ENDS_OPEN = 'sealane.io/ends-open'

/** Whether open connections to the endpoints of an imported slice get no answer after a withdrawal. */
export function endsOpenOf({ metadata }: Pick<EndpointSlice, 'metadata'>): boolean {
  return metadata.annotations?.[ANNOTATION_ENDS_OPEN] === 'true'
}

/** How the exporter of a service drains it. */
export type Drain = 'open connections go on' | 'now'

/** Undefined: it is not drained, or the annotation says neither. */
export function drainOf(object: { readonly metadata: Pick<ObjectMeta, 'annotations'> }): Drain | undefined {
  const value = object.metadata.annotations?.[ANNOTATION_DRAIN]
  return value === 'now' ? 'now' : value === 'true' ? 'open connections go on' : undefined
}

/** Each world is another object: what follows from it is kept for as long as it is used. */
export interface SharesWorld {
  /** Id of this cluster. */
  readonly self: string
  readonly clusterset: string | undefined
  /** By id, this cluster included. */
  readonly clusters: ReadonlyMap<string, Pick<Cluster, 'spec'>>
  /** Clusters that answer. Undefined while that is not known; then all count. */
  readonly reachable: ReadonlySet<string> | undefined
  /** Those of them that have given no answer for a moment, by unansweredClusters(). Absent: none. */
  readonly unanswered?: ReadonlySet<string>
  readonly policies: TrafficPolicies
  /** Clusters that the egress rules of this cluster let none of its namespaces call, by clustersWithoutEgress(). */
  readonly withoutEgress: ReadonlySet<string>
}

type WorldObject = AnyTrafficPolicy | Cluster | ClusterAccessPolicy | Membership

/** A change of one object of the world, as the local API reports it. */
export type SharesChange =
  | { readonly type: 'set'; readonly object: WorldObject; readonly previous: WorldObject | undefined }
  | { readonly type: 'removed'; readonly object: WorldObject }

/**
 * Whether a change may change shares: many other fields change more often, such as those of a status. Undefined means
 * that anything may have changed.
 */
export function changesShares(change: SharesChange | undefined): boolean {
  if (change?.type !== 'set' || change.previous === undefined) return true
  return JSON.stringify(decidingPart(change.object)) !== JSON.stringify(decidingPart(change.previous))
}

function decidingPart(object: WorldObject): readonly unknown[] {
  if (object.kind === 'Membership') return [object.spec.clusterset]
  if (object.kind === 'Cluster') {
    const { drained, drainedNow, labels, properties = {} } = object.spec
    return [drained === true, drainedNow === true, labels, properties]
  }
  const { uid, generation = 0 } = object.metadata
  // A version counts for a process that has looked at each generation since.
  const invalid = (problem: string | undefined): number | undefined => (problem === undefined ? undefined : generation)
  if (object.kind === 'ClusterAccessPolicy')
    return [uid, invalid(accessProblem(object)), accessInForce(object).spec.egress]
  // A process that has seen a later version than the status keeps follows that one until the policy is valid again.
  return [uid, invalid(trafficPolicyProblem(object)), policyInForce(object)?.spec]
}

export interface ServiceShares extends SharesPlan {
  /** The policy that counts. Undefined: none does. */
  readonly policy: AnyTrafficPolicy | undefined
  /**
   * The ports whose shares are others than those of the service, because some of its endpoints do not serve them. Each
   * is in one plan. Mostly empty.
   */
  readonly ports: readonly PortShares[]
}

/** The shares of some ports: those of the service as if it had only the endpoints that serve them (KEP-5939). */
export interface PortShares extends SharesPlan {
  readonly of: readonly ImportPort[]
}

/** How people name a port: by the name that they chose, or by protocol and number. */
export function importPortText({ name, protocol, port }: ImportPort): string {
  return name ?? `${protocol} ${port}`
}

/** The shares of one port. */
export function sharesOfPort(shares: ServiceShares, port: Parameters<typeof portId>[0]): SharesPlan {
  if (shares.ports.length === 0) return shares
  const id = portId(port)
  return shares.ports.find(({ of }) => of.some((one) => portId(one) === id)) ?? shares
}

/**
 * Takes the import and all its slices of one address family. Undefined: no policy counts for it, it selects no
 * clusters, nothing is drained and all exporters may be called, so all ready endpoints count alike.
 */
export function sharesOfService(
  service: ServiceImport,
  slices: readonly EndpointSlice[],
  world: SharesWorld,
): ServiceShares | undefined {
  const { namespace = '', name } = service.metadata
  const policy = world.policies.policyFor(namespace, name)
  const isPlain = policy === undefined && (service.spec.clusterSelectors ?? []).length === 0
  // Most services are plain, and nothing is counted for them.
  const isOpen = !knownOf(world).anyDrained && world.withoutEgress.size === 0
  if (isPlain && isOpen && !slices.some(isDrained)) return undefined
  const clusters = exportersOf(service, slices, world)
  if (isPlain && clusters.every(({ drained, allowed }) => drained === undefined && allowed !== false)) return undefined
  return planned(service, { policy, clusters, slices }, world)
}

function isDrained({ metadata: { annotations } }: EndpointSlice): boolean {
  return annotations?.[ANNOTATION_DRAINED] === 'true'
}

/** Whether the exporter drains the service, or the whole cluster is drained, so that open connections are ended. */
function isDrainedNow(slice: EndpointSlice, { clusters }: SharesWorld): boolean {
  const { labels, annotations } = slice.metadata
  if (annotations?.[ANNOTATION_DRAINED_NOW] !== 'true') return false
  return isDrained(slice) || clusters.get(labels?.[LABEL_SOURCE_CLUSTER] ?? '')?.spec.drained === true
}

function isClusterDrainedNow({ clusters }: SharesWorld, id: string): boolean {
  const spec = clusters.get(id)?.spec
  return spec?.drained === true && spec.drainedNow === true
}

const NONE_ENDED: ReadonlySet<string> = new Set()

/**
 * The clusters to whose endpoints open connections are ended: they are drained now, and have no share. One that has a
 * share is the last that is ready: a client whose connection ended would only call it again. If no cluster has a share,
 * none is ended: the last one may be out of reach for a moment only.
 */
export function endedClusters(
  { shares }: Pick<SharesPlan, 'shares'>,
  slices: readonly EndpointSlice[],
  world: SharesWorld,
): ReadonlySet<string> {
  // Nearly always nothing is drained, and all services are planned at once when a node starts.
  if (!knownOf(world).anyDrained && !slices.some(isDrained)) return NONE_ENDED
  if (!shares.some(({ share }) => share > 0)) return NONE_ENDED
  const marked = new Set(
    slices.flatMap((slice) =>
      isDrainedNow(slice, world) ? (slice.metadata.labels?.[LABEL_SOURCE_CLUSTER] ?? []) : [],
    ),
  )
  return new Set(
    shares.flatMap(({ cluster, share }) =>
      share === 0 && (marked.has(cluster) || isClusterDrainedNow(world, cluster)) ? [cluster] : [],
    ),
  )
}

/** Like sharesOfService(), and where all ready endpoints count alike, the shares that follow from that. For people. */
export function statedShares(
  service: ServiceImport,
  slices: readonly EndpointSlice[],
  world: SharesWorld,
): ServiceShares {
  const { namespace = '', name } = service.metadata
  const policy = world.policies.policyFor(namespace, name)
  return planned(service, { policy, clusters: exportersOf(service, slices, world), slices }, world)
}

function plansOf(policy: AnyTrafficPolicy, world: SharesWorld): Map<string, ServiceShares> {
  const { plans } = knownOf(world)
  let known = plans.get(policy)
  if (known === undefined) plans.set(policy, (known = new Map<string, ServiceShares>()))
  return known
}

/** All of a service that its plan by a policy depends on, if it has no cluster selectors. */
function planKey(type: string, clusters: readonly ExportingCluster[]): string {
  let key = type
  for (const { id, ready, total, terminating = 0, ...one } of clusters) {
    const { reachable, unanswered = false, allowed, drained = '', endsConnections } = one
    key += ` ${id} ${ready} ${total} ${terminating} ${reachable} ${unanswered} ${allowed !== false} ${drained} ${endsConnections}`
  }
  return key
}

const NO_PORTS: readonly PortShares[] = []
/** Most plans that are kept of one policy: endpoints of others come and go for as long as a world lasts. */
const MAX_KNOWN_PLANS = 10_000

interface ServiceParts {
  readonly policy: AnyTrafficPolicy | undefined
  readonly clusters: readonly ExportingCluster[]
  readonly slices: readonly EndpointSlice[]
}

function planned(
  { spec, status }: ServiceImport,
  { policy, clusters, slices }: ServiceParts,
  world: SharesWorld,
): ServiceShares {
  const { clusterSelectors = [], type } = spec
  const fresh = (some: readonly ExportingCluster[]): ServiceShares => {
    const made = planShares({
      importer: selectable(world.self, world),
      ...{ type, clusterSelectors, clusters: some },
      resultsBefore: status?.clusterSelectorResults,
      rules: policy?.spec,
    })
    return { ...made, policy, ports: NO_PORTS }
  }
  // Ten thousand services by one policy have few plans, and share them as they are.
  const plans = policy === undefined || clusterSelectors.length > 0 ? undefined : plansOf(policy, world)
  const plan = (some: readonly ExportingCluster[]): ServiceShares => {
    if (plans === undefined) return fresh(some)
    const key = planKey(type, some)
    let known = plans.get(key)
    if (known !== undefined) return known
    if (plans.size >= MAX_KNOWN_PLANS) plans.clear()
    plans.set(key, (known = fresh(some)))
    return known
  }
  const whole = plan(clusters)
  const ports = planPorts(spec.ports, slices, { clusters, whole, plan })
  return ports.length === 0 ? whole : { ...whole, ports }
}

/**
 * Most plans of ports of one service. A hostile member can make the endpoints of each port different; later ports then
 * have the shares of the service.
 */
const MAX_PORT_PLANS = 256

/** Most endpoints that are read for the plans of ports of one service together. The same holds for later ports. */
const MAX_ENDPOINTS_READ = 1_000_000

interface PortPlanning {
  readonly clusters: readonly ExportingCluster[]
  readonly whole: SharesPlan
  readonly plan: (clusters: readonly ExportingCluster[]) => SharesPlan
}

/** Endpoints whose slices have the same ports. */
interface PortGroup {
  readonly slices: EndpointSlice[]
  readonly targets: ReadonlyMap<string, number>
}

function planPorts(
  ports: readonly ImportPort[],
  slices: readonly EndpointSlice[],
  { clusters, whole, plan }: PortPlanning,
): readonly PortShares[] {
  // Nearly all services have all ports everywhere, and one plan for them.
  if (slices.every((slice) => servesAll(slice, ports))) return NO_PORTS
  const used = slices.filter(({ endpoints = [], metadata: { labels } }) => {
    return endpoints.length > 0 && labels?.[LABEL_SOURCE_CLUSTER] !== undefined
  })
  // A slice without endpoints may have no ports, and a bundle of facts says nothing about them.
  if (used.every((slice) => servesAll(slice, ports)) || used.every((slice) => slice.ports === undefined)) return []
  const groups = groupedByPorts(used)
  const serving = groupsOfPorts(groups)
  const found = new Map<string, { readonly of: ImportPort[]; readonly plan: SharesPlan }>()
  let read = 0
  for (const port of ports) {
    const indexes = serving.get(portId(port)) ?? []
    const key = indexes.join()
    const known = found.get(key)
    if (known !== undefined) known.of.push(port)
    else if (indexes.length < groups.length && found.size < MAX_PORT_PLANS && read <= MAX_ENDPOINTS_READ) {
      const those = indexes.flatMap((index) => groups[index]?.slices ?? [])
      read += those.reduce((sum, { endpoints = [] }) => sum + endpoints.length, 0)
      if (read <= MAX_ENDPOINTS_READ) found.set(key, { of: [port], plan: plan(withCounts(clusters, those)) })
    }
  }
  return [...found.values()].flatMap(({ of, plan: { shares, refused, results } }) =>
    isSameDivision({ shares }, whole) ? [] : [{ shares, refused, results, of }],
  )
}

function groupedByPorts(slices: readonly EndpointSlice[]): readonly PortGroup[] {
  const groups = new Map<string, PortGroup>()
  for (const slice of slices) {
    const key = JSON.stringify((slice.ports ?? []).map(({ name, protocol, port }) => [name, protocol, port]))
    const group = groups.get(key)
    if (group === undefined) groups.set(key, { slices: [slice], targets: targetPorts(slice) })
    else group.slices.push(slice)
  }
  return [...groups.values()]
}

/** The indexes of the groups that serve a port, by portId(). */
function groupsOfPorts(groups: readonly PortGroup[]): ReadonlyMap<string, readonly number[]> {
  const found = new Map<string, number[]>()
  for (const [index, { targets }] of groups.entries()) {
    for (const [id, target] of targets) {
      if (!isPortNumber(target)) continue
      const known = found.get(id)
      if (known === undefined) found.set(id, [index])
      else known.push(index)
    }
  }
  return found
}

/** The clusters of these slices, with the endpoints in them. All else is true of the whole cluster. */
function withCounts(
  clusters: readonly ExportingCluster[],
  slices: readonly EndpointSlice[],
): readonly ExportingCluster[] {
  const counts = new Map<string, EndpointCounts>()
  for (const { metadata, endpoints } of slices) {
    const id = metadata.labels?.[LABEL_SOURCE_CLUSTER] ?? ''
    const counted = counts.get(id) ?? noEndpoints()
    counts.set(id, counted)
    for (const endpoint of endpoints ?? []) count(counted, endpoint)
  }
  return clusters.flatMap((cluster) => {
    const counted = counts.get(cluster.id)
    return counted === undefined ? [] : [{ ...cluster, ...numbersOf(counted) }]
  })
}

/** Whether calls are divided alike. */
function isSameDivision(one: Pick<SharesPlan, 'shares'>, other: Pick<SharesPlan, 'shares'>): boolean {
  const text = ({ shares }: Pick<SharesPlan, 'shares'>): string =>
    shares.flatMap(({ cluster, share }) => (share > 0 ? [`${cluster} ${share}`] : [])).join()
  return text(one) === text(other)
}

/** The clusters that export the service, each with its endpoints. */
function exportersOf(
  service: ServiceImport,
  slices: readonly EndpointSlice[],
  world: SharesWorld,
): readonly ExportingCluster[] {
  const found = new Map<string, Counted>()
  const of = (cluster: string): Counted => {
    const known = found.get(cluster)
    if (known !== undefined) return known
    const fresh: Counted = { ready: new Set(), drained: false, drainedNow: false }
    found.set(cluster, fresh)
    return fresh
  }
  for (const { cluster } of service.status?.clusters ?? []) of(cluster)
  for (const slice of slices) {
    const cluster = slice.metadata.labels?.[LABEL_SOURCE_CLUSTER]
    if (cluster === undefined) continue
    const counted = of(cluster)
    if (isDrained(slice)) counted.drained = true
    if (isDrainedNow(slice, world)) counted.drainedNow = true
    for (const endpoint of slice.endpoints ?? []) count(counted, endpoint)
  }
  const clusters: ExportingCluster[] = []
  for (const [id, counted] of found) {
    const { properties, labels } = selectable(id, world)
    const { ready, total, terminating } = numbersOf(counted)
    const isClusterDrained = world.clusters.get(id)?.spec.drained === true
    // Field by field: this runs for each cluster of each service.
    clusters.push({
      id,
      properties,
      labels,
      ready,
      total,
      terminating,
      reachable: world.reachable === undefined || world.reachable.has(id),
      unanswered: world.unanswered?.has(id) === true,
      allowed: id === world.self || !world.withoutEgress.has(id),
      drained: isClusterDrained ? 'cluster' : counted.drained ? 'service' : undefined,
      endsConnections: counted.drainedNow || isClusterDrainedNow(world, id),
    })
  }
  return clusters
}

/** The addresses of endpoints. One may be in several slices. Most services have ready ones only. */
interface EndpointCounts {
  readonly ready: Set<string>
  notReady?: Set<string>
  /** Terminating, and not ready. */
  leaving?: Set<string>
}

interface Counted extends EndpointCounts {
  drained: boolean
  drainedNow: boolean
}

function noEndpoints(): EndpointCounts {
  return { ready: new Set() }
}

function count(counted: EndpointCounts, { addresses, conditions }: SliceEndpoint): void {
  const into =
    conditions?.ready !== false
      ? counted.ready
      : conditions.terminating === true
        ? (counted.leaving ??= new Set())
        : (counted.notReady ??= new Set())
  for (const address of addresses) into.add(address)
}

/** An address that is in several slices counts once, and as what is best for it. */
function numbersOf({ ready, notReady, leaving }: EndpointCounts): {
  readonly ready: number
  readonly total: number
  readonly terminating: number
} {
  if (notReady === undefined && leaving === undefined) return { ready: ready.size, total: ready.size, terminating: 0 }
  const isKnown = (address: string): boolean => ready.has(address) || notReady?.has(address) === true
  const others = notReady === undefined ? 0 : [...notReady].filter((address) => !ready.has(address)).length
  const terminating = leaving === undefined ? 0 : [...leaving].filter((address) => !isKnown(address)).length
  return { ready: ready.size, total: ready.size + others, terminating }
}

/** What all services of a world share. */
interface KnownOfWorld {
  readonly anyDrained: boolean
  readonly selectable: Map<string, SelectableCluster>
  /** By planKey(). Most services of a cluster are alike in what their plans depend on. */
  readonly plans: Map<AnyTrafficPolicy, Map<string, ServiceShares>>
}

const KNOWN = new WeakMap<SharesWorld, KnownOfWorld>()

function knownOf(world: SharesWorld): KnownOfWorld {
  const known = KNOWN.get(world)
  if (known !== undefined) return known
  const anyDrained = [...world.clusters.values()].some(({ spec }) => spec.drained === true)
  const fresh: KnownOfWorld = { anyDrained, selectable: new Map(), plans: new Map() }
  KNOWN.set(world, fresh)
  return fresh
}

function selectable(id: string, world: SharesWorld): SelectableCluster {
  const known = knownOf(world).selectable
  const before = known.get(id)
  if (before !== undefined) return before
  const spec = world.clusters.get(id)?.spec
  const fresh = {
    id,
    properties: believedProperties(spec?.properties, id, world.clusterset),
    labels: spec?.labels ?? {},
  }
  known.set(id, fresh)
  return fresh
}
