/** Everything that this cluster's API should hold about the clusterset, from the broker's records. Pure. */
import { podFamilies } from '../../model/addresses/addressing.ts'
import type { ServiceKey } from '../../model/ids.ts'
import type { Prefix } from '../../model/addresses/ip.ts'
import type { NeededRange } from '../../model/addresses/needed-ranges.ts'
import { ANNOTATION_PUBLISHED_AT } from '../../model/lanes/lane-servers.ts'
import type { ClusterSpec, KubeObject, ServiceImport } from '../../model/objects.ts'
import { type OwnFacts, believedCluster } from '../../model/addresses/own-cluster.ts'
import type { StoredRecord } from '../../model/records.ts'
import type { ConflictVerdict } from '../../model/services/service-conflicts.ts'
import { clusterProblem } from './check-record.ts'
import {
  type ClustersetView,
  type Dropped,
  RecordJudge,
  type RecordJudgeInit,
  type ServiceFacts,
  viewClusterset,
} from './clusterset-view.ts'
import { KeyedMemo } from '../keyed-memo.ts'
import { objectKeyText } from '../object-key-text.ts'
import { type OwnExports, withOwnExport } from '../export/own-exports.ts'
import { clusterObject, planEndpoints } from '../cluster/plan-clusters.ts'
import { type ServicePlan, type SliceMemo, planService } from '../plan-service.ts'

export interface ImportWorld extends OwnExports {
  /** This cluster's facts, from its own API. */
  readonly ownSpec: ClusterSpec
  /** By which the broker's word about this cluster is judged. */
  readonly ownFacts: Pick<OwnFacts, 'stated' | 'local' | 'globalRange'>
  readonly records: Iterable<StoredRecord>
  /** Owners whose missing records are gone for certain, '' for the broker itself. */
  readonly certain: ReadonlySet<string>
  /** That exist here and are not terminating. */
  readonly namespaces: ReadonlySet<string>
  /** What the local API holds now. */
  readonly serviceImport: (key: ServiceKey) => ServiceImport | undefined
  /** Facts that are still in the local API, for clusters that the broker does not show (yet). */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  readonly clustersetIpRange: Prefix | undefined
  /** What no other cluster's pods may have here: plan-needs.ts. */
  readonly needed: readonly NeededRange[]
  /** Clusters taken as dead: plan-contact.ts. */
  readonly expired: ReadonlySet<string>
}

/** replanServices changes the maps in place. */
export interface ImportPlan {
  /** By objectKeyText. */
  readonly objects: Map<string, KubeObject>
  /** By objectKeyText of the ServiceImport. */
  readonly services: Map<string, ServicePlan>
  /** Conflicts that this cluster's own exports are part of. */
  readonly ownVerdicts: Map<ServiceKey, ConflictVerdict>
  readonly dropped: readonly Dropped[]
  readonly basis: PlanBasis
}

/** What all services are planned from. */
export interface PlanBasis {
  readonly view: ClustersetView
  /** Whose addresses can be used. */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  /** What is left out beside services. */
  readonly others: readonly Dropped[]
  /** Services of which something is left out. */
  readonly dropping: Map<ServiceKey, readonly Dropped[]>
}

export interface ImportMemory {
  readonly judge: RecordJudge
  readonly services: KeyedMemo<ServicePlan>
  /** By service. */
  readonly slices: Map<ServiceKey, SliceMemo>
  readonly clusters: KeyedMemo<KubeObject>
}

export function newImportMemory(init: RecordJudgeInit): ImportMemory {
  return { judge: new RecordJudge(init), services: new KeyedMemo(), slices: new Map(), clusters: new KeyedMemo() }
}

/** Takes the world and, to save work, what the round before remembers. */
export function planImports(world: ImportWorld, memory: ImportMemory): ImportPlan {
  const view = viewClusterset(world.records, memory.judge)
  const others = [...view.dropped]
  const clusters = usableClusters(world, view, others)
  const plan = { objects: new Map(), services: new Map(), ownVerdicts: new Map(), dropped: others }
  for (const [id, spec] of [...clusters].sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (view.clusters.has(id))
      add(
        plan,
        memory.clusters.get(`Cluster/${id}`, [spec], () => clusterObject(spec)),
      )
  }
  for (const endpoint of planEndpoints(world, view.endpoints, others)) {
    const { name, annotations } = endpoint.metadata
    const inputs = [endpoint.spec, annotations?.[ANNOTATION_PUBLISHED_AT]]
    add(
      plan,
      memory.clusters.get(`Endpoint/${name}`, inputs, () => endpoint),
    )
  }
  const basis: PlanBasis = { view, clusters, others, dropping: new Map() }
  for (const key of [...view.services.keys()].sort()) replan(world, memory, { plan, basis }, key)
  for (const key of memory.slices.keys()) if (!plan.services.has(`ServiceImport/${key}`)) memory.slices.delete(key)
  memory.services.endRound()
  memory.clusters.endRound()
  return { ...plan, dropped: allDropped(basis), basis }
}

/**
 * The plan with some services planned anew, changed in place: valid while nothing but these services, the facts of the
 * view about them, and their objects in the local API has changed.
 */
export function replanServices(
  world: ImportWorld,
  memory: ImportMemory,
  plan: ImportPlan,
  keys: Iterable<ServiceKey>,
): ImportPlan {
  for (const key of keys) {
    for (const object of objectsOf(plan.services.get(`ServiceImport/${key}`)))
      plan.objects.delete(objectKeyText(object))
    plan.services.delete(`ServiceImport/${key}`)
    plan.ownVerdicts.delete(key)
    plan.basis.dropping.delete(key)
    replan(world, memory, { plan, basis: plan.basis }, key)
  }
  return { ...plan, dropped: allDropped(plan.basis) }
}

/** Slices before the ServiceImport: who finds the service finds its endpoints. */
export function objectsOf(plan: ServicePlan | undefined): KubeObject[] {
  if (plan === undefined) return []
  return plan.serviceImport === undefined ? [...plan.slices] : [...plan.slices, plan.serviceImport]
}

type OpenPlan = Pick<ImportPlan, 'objects' | 'services' | 'ownVerdicts'>

function replan(
  world: ImportWorld,
  memory: ImportMemory,
  { plan, basis }: { readonly plan: OpenPlan; readonly basis: PlanBasis },
  key: ServiceKey,
): void {
  const told = basis.view.services.get(key)
  if (told === undefined || told.exports.length === 0 || !world.namespaces.has(namespaceOf(key))) return
  const { facts, dropped } = withOwnExport(key, told, world)
  if (dropped.length > 0) basis.dropping.set(key, dropped)
  if (facts.exports.length === 0) return
  const service = planRemembered(world, memory, { key, facts, clusters: basis.clusters })
  plan.services.set(`ServiceImport/${key}`, service)
  for (const object of objectsOf(service)) add(plan, object)
  if (service.dropped.length > 0) basis.dropping.set(key, [...dropped, ...service.dropped])
  if (service.ownVerdict !== undefined) plan.ownVerdicts.set(key, service.ownVerdict)
}

function add(plan: OpenPlan, object: KubeObject): void {
  plan.objects.set(objectKeyText(object), object)
}

function allDropped({ others, dropping }: PlanBasis): Dropped[] {
  return [...others, ...[...dropping.values()].flat()]
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
  const ownSlices = world.ownRecords(key)?.slice(1)
  const held = present !== undefined && isHeld(world, present, facts) ? present.spec : undefined
  // Once the broker knows all of its own records, an address that is missing is none.
  const previousIps = world.certain.has('') ? [] : (present?.spec.ips ?? [])
  const { own, clustersetIpRange, expired } = world
  const specs = facts.exports.map((record) => clusters.get(record.key.cluster))
  const dead = facts.exports.map((record) => expired.has(record.key.cluster))
  const { exports, slices, ips } = facts
  const ownFamilies = podFamilies(world.ownSpec)
  const ownPods = world.ownSpec.podCIDRs
  const ours = [own, ownSlices, ownFamilies, ownPods]
  const inputs = [exports, slices, ips, ours, specs, held, previousIps, clustersetIpRange, dead]
  return memory.services.get(key, inputs, () => {
    let memo = memory.slices.get(key)
    if (memo === undefined) memory.slices.set(key, (memo = new KeyedMemo()))
    const known = { held, previousIps, clustersetIpRange, expired }
    return planService({ key, facts, own, ownFamilies, ownPods, ownSlices, clusters, ...known }, memo)
  })
}

/** A cluster that was part of the service is missing, and nobody knows whether it has withdrawn. */
function isHeld(world: ImportWorld, present: ServiceImport, facts: ServiceFacts): boolean {
  const exporting = new Set<string>(facts.exports.map(({ key }) => key.cluster))
  const isCertain = (id: string): boolean => world.certain.has(id) || (id === world.own && world.ownKnown)
  return (present.status?.clusters ?? []).some(({ cluster }) => !exporting.has(cluster) && !isCertain(cluster))
}

/** Clusters whose addresses can be used: the broker's facts, else those known from before; of itself what it knows. */
function usableClusters(world: ImportWorld, view: ClustersetView, dropped: Dropped[]): Map<string, ClusterSpec> {
  const { own, ownFacts, ownSpec } = world
  const usable = new Map<string, ClusterSpec>()
  for (const [id, spec] of [...world.clusters, ...view.clusters]) {
    if (id === own) continue
    const problem = clusterProblem(spec, ownSpec, world.needed)
    if (problem === undefined) usable.set(id, spec)
    // What was mirrored of it before is not what it is now.
    else usable.delete(id)
    if (problem !== undefined) dropped.push({ what: `${id}/Cluster`, ...problem })
  }
  const { spec, problem } = believedCluster(view.clusters.get(own), { id: own, ...ownFacts })
  // The broker may not have heard yet of what is stated now.
  if (problem !== undefined)
    dropped.push({ what: `${own}/Cluster`, reason: 'OwnFactsDiffer', message: problem, settles: true })
  if (spec !== undefined) usable.set(own, spec)
  return usable
}

function namespaceOf(key: ServiceKey): string {
  return key.slice(0, key.indexOf('/'))
}
