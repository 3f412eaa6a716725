/**
 * The shares of one imported service, from the objects of the importing cluster: what route agents, the agent, DNS and
 * the commands ask, so that all of them decide alike. Pure.
 */
import {
  type Cluster,
  type EndpointSlice,
  LABEL_SOURCE_CLUSTER,
  type Membership,
  type ObjectMeta,
  type ServiceImport,
  type SliceEndpoint,
} from '../model.ts'
import { believedProperties } from './cluster-properties.ts'
import { type ExportingCluster, type SelectableCluster, type SharesPlan, planShares } from './plan-shares.ts'
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
 * On imported EndpointSlices: "true" if their exporter lets open connections go on when it offers the service no more.
 */
export const ANNOTATION_KEEPS_OPEN = 'sealane.io/keeps-open'

/** Whether the exporter of an imported slice lets open connections go on after a withdrawal. */
export function keepsOpenOf({ metadata }: Pick<EndpointSlice, 'metadata'>): boolean {
  return metadata.annotations?.[ANNOTATION_KEEPS_OPEN] === 'true'
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
  readonly policies: TrafficPolicies
}

type WorldObject = AnyTrafficPolicy | Cluster | Membership

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
  // A process that has seen a later version than the status keeps follows that one until the policy is valid again.
  return [object.metadata.uid, trafficPolicyProblem(object) === undefined, policyInForce(object)?.spec]
}

export interface ServiceShares extends SharesPlan {
  /** The policy that counts. Undefined: none does. */
  readonly policy: AnyTrafficPolicy | undefined
}

/**
 * Takes the import and all its slices of one address family. Undefined: no policy counts for it, it selects no clusters
 * and nothing is drained, so all ready endpoints count alike.
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
  if (isPlain && !knownOf(world).anyDrained && !slices.some(isDrained)) return undefined
  const clusters = exportersOf(service, slices, world)
  if (isPlain && clusters.every(({ drained }) => drained === undefined)) return undefined
  return planned(service, { policy, clusters }, world)
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
  if (!shares.some(({ share }) => share > 0)) return new Set()
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
  return planned(service, { policy, clusters: exportersOf(service, slices, world) }, world)
}

interface ServiceParts {
  readonly policy: AnyTrafficPolicy | undefined
  readonly clusters: readonly ExportingCluster[]
}

function planned(
  { spec, status }: ServiceImport,
  { policy, clusters }: ServiceParts,
  world: SharesWorld,
): ServiceShares {
  const plan = planShares({
    importer: selectable(world.self, world),
    type: spec.type,
    ...{ clusterSelectors: spec.clusterSelectors ?? [], clusters },
    resultsBefore: status?.clusterSelectorResults,
    rules: policy?.spec,
  })
  return { ...plan, policy }
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
    const fresh = { ready: new Set<string>(), all: new Set<string>(), drained: false, drainedNow: false }
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
  return [...found].map(([id, { ready, all, drained, drainedNow }]) => ({
    ...selectable(id, world),
    ready: ready.size,
    total: all.size,
    reachable: world.reachable === undefined || world.reachable.has(id),
    drained: world.clusters.get(id)?.spec.drained === true ? 'cluster' : drained ? 'service' : undefined,
    endsConnections: drainedNow || isClusterDrainedNow(world, id),
  }))
}

interface Counted {
  readonly ready: Set<string>
  readonly all: Set<string>
  drained: boolean
  drainedNow: boolean
}

function count({ ready, all }: Counted, { addresses, conditions }: SliceEndpoint): void {
  for (const address of addresses) {
    all.add(address)
    if (conditions?.ready !== false) ready.add(address)
  }
}

/** What all services of a world share. */
interface KnownOfWorld {
  readonly anyDrained: boolean
  readonly selectable: Map<string, SelectableCluster>
}

const KNOWN = new WeakMap<SharesWorld, KnownOfWorld>()

function knownOf(world: SharesWorld): KnownOfWorld {
  const known = KNOWN.get(world)
  if (known !== undefined) return known
  const anyDrained = [...world.clusters.values()].some(({ spec }) => spec.drained === true)
  const fresh: KnownOfWorld = { anyDrained, selectable: new Map() }
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
