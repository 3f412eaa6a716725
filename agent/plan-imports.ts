/** Everything that this cluster's API should hold about the clusterset, from the broker's records. Pure. */
import type { ServiceKey } from '../model/ids.ts'
import type { Prefix } from '../model/ip.ts'
import type { ClusterSpec, KubeObject, ServiceImport } from '../model/objects.ts'
import type { MemberRecord, StoredRecord } from '../model/records.ts'
import type { ConflictVerdict } from '../model/service-conflicts.ts'
import { clusterProblem } from './check-record.ts'
import { type ClustersetView, type Dropped, RecordJudge, type ServiceFacts, viewClusterset } from './clusterset-view.ts'
import { KeyedMemo } from './keyed-memo.ts'
import { objectKeyText } from './object-key-text.ts'
import { clusterObject, planEndpoints } from './plan-clusters.ts'
import { type ServicePlan, planService } from './plan-service.ts'

export interface ImportWorld {
  /** Id of this cluster. */
  readonly own: string
  /** This cluster's facts, from its own API. */
  readonly ownSpec: ClusterSpec
  readonly records: Iterable<StoredRecord>
  /** Owners whose missing records are gone for certain, '' for the broker itself. */
  readonly certain: ReadonlySet<string>
  /** That exist here and are not terminating. */
  readonly namespaces: ReadonlySet<string>
  /** This cluster's own slice records of an exported service; undefined when it is not exported here. */
  readonly ownSlices: (key: ServiceKey) => readonly MemberRecord[] | undefined
  /** What the local API holds now. */
  readonly serviceImport: (key: ServiceKey) => ServiceImport | undefined
  /** Facts that are still in the local API, for clusters that the broker does not show (yet). */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  readonly clustersetIpRange: Prefix | undefined
}

export interface ImportPlan {
  /** By objectKeyText, sorted. */
  readonly objects: ReadonlyMap<string, KubeObject>
  /** By objectKeyText of the ServiceImport. */
  readonly services: ReadonlyMap<string, ServicePlan>
  /** Conflicts that this cluster's own exports are part of. */
  readonly ownVerdicts: ReadonlyMap<ServiceKey, ConflictVerdict>
  readonly dropped: readonly Dropped[]
}

export interface ImportMemory {
  readonly judge: RecordJudge
  readonly services: KeyedMemo<ServicePlan>
  readonly clusters: KeyedMemo<KubeObject>
}

export function newImportMemory(init: { readonly allowedNamespaces: readonly string[] }): ImportMemory {
  return { judge: new RecordJudge(init), services: new KeyedMemo(), clusters: new KeyedMemo() }
}

/** Takes the world and, to save work, what the round before remembers. */
export function planImports(world: ImportWorld, memory: ImportMemory): ImportPlan {
  const view = viewClusterset(world.records, memory.judge)
  const dropped = [...view.dropped]
  const clusters = usableClusters(world, view, dropped)
  const objects = new Map<string, KubeObject>()
  const services = new Map<string, ServicePlan>()
  const ownVerdicts = new Map<ServiceKey, ConflictVerdict>()
  const add = (object: KubeObject): void => void objects.set(objectKeyText(object), object)

  for (const [id, spec] of [...clusters].sort(([a], [b]) => (a < b ? -1 : 1))) {
    if (view.clusters.has(id)) add(memory.clusters.get(`Cluster/${id}`, [spec], () => clusterObject(spec)))
  }
  for (const endpoint of planEndpoints(world, view.endpoints, dropped)) {
    add(memory.clusters.get(`Endpoint/${endpoint.metadata.name}`, [endpoint.spec], () => endpoint))
  }
  for (const key of [...view.services.keys()].sort()) {
    const facts = view.services.get(key)
    if (facts === undefined || facts.exports.length === 0 || !world.namespaces.has(namespaceOf(key))) continue
    const plan = planRemembered(world, memory, { key, facts, clusters })
    services.set(`ServiceImport/${key}`, plan)
    // Slices before the ServiceImport: who finds the service finds its endpoints.
    plan.slices.forEach(add)
    if (plan.serviceImport !== undefined) add(plan.serviceImport)
    if (plan.ownVerdict !== undefined) ownVerdicts.set(key, plan.ownVerdict)
    dropped.push(...plan.dropped)
  }
  memory.services.endRound()
  memory.clusters.endRound()
  return { objects, services, ownVerdicts, dropped }
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
  const ownSlices = world.ownSlices(key)
  const held = present !== undefined && isHeld(world, present, facts) ? present.spec : undefined
  // Once the broker knows all of its own records, an address that is missing is none.
  const previousIps = world.certain.has('') ? [] : (present?.spec.ips ?? [])
  const { own, clustersetIpRange } = world
  const specs = facts.exports.map((record) => clusters.get(record.key.cluster))
  const inputs = [facts.exports, facts.slices, facts.ips, ownSlices, specs, held, previousIps, own, clustersetIpRange]
  return memory.services.get(key, inputs, () =>
    planService({ key, facts, own, ownSlices, clusters, held, previousIps, clustersetIpRange }),
  )
}

/** A cluster that was part of the service is missing, and nobody knows whether it has withdrawn. */
function isHeld(world: ImportWorld, present: ServiceImport, facts: ServiceFacts): boolean {
  const exporting = new Set<string>(facts.exports.map(({ key }) => key.cluster))
  return (present.status?.clusters ?? []).some(({ cluster }) => !exporting.has(cluster) && !world.certain.has(cluster))
}

/** Clusters whose addresses can be used: the broker's facts, else those known from before. */
function usableClusters(world: ImportWorld, view: ClustersetView, dropped: Dropped[]): Map<string, ClusterSpec> {
  const usable = new Map<string, ClusterSpec>()
  for (const [id, spec] of [...world.clusters, ...view.clusters]) {
    const problem = id === world.own ? undefined : clusterProblem(spec, world.ownSpec)
    if (problem === undefined) usable.set(id, spec)
    else dropped.push({ what: `${id}/Cluster`, reason: problem })
  }
  return usable
}

function namespaceOf(key: ServiceKey): string {
  return key.slice(0, key.indexOf('/'))
}
