/** Counts the ready pods of each imported service, and those among them that are reachable. Pure. */
import { LABEL_SERVICE_NAME, LABEL_SOURCE_CLUSTER } from '../../model/model.ts'
import type { FactObjects } from './fact.ts'
import type { Seen } from './read-facts.ts'
import type { PartReport } from './shapes.ts'
import type { World } from './world.ts'

export interface ImportState {
  readonly service: Seen<FactObjects['ServiceImport']>
  /** The exporting clusters. */
  readonly clusters: readonly string[]
  readonly ready: number
  /** The ready pods in clusters that are reached. */
  readonly usable: number
  /** Whether any exporter is this cluster or is reached. */
  readonly isReached: boolean
}

/** An agent checks every 15 s. An older result is not used. */
const LOOKED_MS = 40_000

/**
 * Whether the acting agent has recently found that every imported service has a ready and reachable pod, and all
 * exporting clusters are still reached.
 */
export function hasAllBackends({ objects, reports, reached, self }: World): boolean {
  if (reached === undefined || objects.ServiceImport === undefined) return false
  const exporters = objects.ServiceImport.flatMap(({ object }) => object.status?.clusters ?? [])
  return reports.some(missesNone) && exporters.every(({ cluster }) => cluster === self || reached.has(cluster))
}

function missesNone({ object: { part, broker, imports, now } }: Seen<PartReport>): boolean {
  if (part !== 'agent' || broker === undefined || imports?.withoutBackends !== 0) return false
  const ageMs = Date.parse(now ?? '') - Date.parse(imports.at)
  return ageMs >= 0 && ageMs < LOOKED_MS
}

/**
 * The states of services that any cluster exports. Empty if the EndpointSlices could not be read, or if no gateway
 * reports.
 */
export function importStates(world: World): readonly ImportState[] {
  const { objects, self, reached } = world
  if (objects.EndpointSlice === undefined || self === undefined || reached === undefined) return []
  const isReached = (cluster: string): boolean => cluster === self || reached.has(cluster)
  const ready = new Map<string, { readonly all: number; readonly usable: number }>()
  for (const { object } of objects.EndpointSlice) {
    const { labels = {}, namespace = '' } = object.metadata
    const key = `${namespace}/${labels[LABEL_SERVICE_NAME] ?? ''}`
    // discovery.k8s.io/v1: an unknown readiness counts as ready.
    const count = (object.endpoints ?? []).filter(({ conditions }) => conditions?.ready ?? true).length
    const before = ready.get(key) ?? { all: 0, usable: 0 }
    const usable = isReached(labels[LABEL_SOURCE_CLUSTER] ?? '') ? count : 0
    ready.set(key, { all: before.all + count, usable: before.usable + usable })
  }
  return (objects.ServiceImport ?? []).flatMap((service): readonly ImportState[] => {
    const { metadata, status } = service.object
    const clusters = (status?.clusters ?? []).map(({ cluster }) => cluster)
    if (clusters.length === 0) return []
    const { all, usable } = ready.get(`${metadata.namespace ?? ''}/${metadata.name}`) ?? { all: 0, usable: 0 }
    return [{ service, clusters, ready: all, usable, isReached: clusters.some(isReached) }]
  })
}
