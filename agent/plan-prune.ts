/** Which of the mirrored objects may go. "Unseen is not gone": only what is known to be withdrawn. Pure. */
import type { Cluster, Endpoint, EndpointSlice, KubeObject, ServiceImport } from '../model/objects.ts'
import { LABEL_MANAGED_BY, LABEL_SOURCE_CLUSTER, MANAGED_BY_SEALANE } from '../model/spec-constants.ts'
import { objectKeyText } from './object-key-text.ts'

/** Mirrored objects of the local API, and perhaps others, which are left alone. */
export interface MirroredObjects {
  readonly serviceImports: readonly ServiceImport[]
  readonly slices: readonly EndpointSlice[]
  readonly clusters: readonly Cluster[]
  readonly endpoints: readonly Endpoint[]
}

export interface PruneWorld extends MirroredObjects {
  readonly own: string
  readonly desired: ReadonlyMap<string, unknown>
  /** ServiceImports that stay though not desired, by objectKeyText. */
  readonly kept: ReadonlyMap<string, unknown>
  /** Owners whose missing records are gone for certain. */
  readonly certain: ReadonlySet<string>
}

/** Objects to remove, ServiceImports first: who no longer finds the service asks for no endpoint. */
export function planPrune(world: PruneWorld): KubeObject[] {
  const gone = (cluster: string | undefined): boolean => cluster !== undefined && world.certain.has(cluster)
  const known = world.clusters.map(({ spec }) => spec.id)
  const imports = world.serviceImports.filter((object) => {
    if (world.kept.has(objectKeyText(object))) return false
    // One that was written without getting its status may be of any cluster.
    const clusters = object.status?.clusters?.map(({ cluster }) => cluster) ?? known
    return clusters.every(gone)
  })
  const mirrored = ownedByMirror(world)
  const slices = mirrored.slices.filter(({ metadata }) => gone(metadata.labels?.[LABEL_SOURCE_CLUSTER]))
  const endpoints = mirrored.endpoints.filter(({ spec }) => gone(spec.cluster))
  const clusters = mirrored.clusters.filter(({ spec }) => gone(spec.id))
  return [...imports, ...slices, ...endpoints, ...clusters].filter(
    (object) => !world.desired.has(objectKeyText(object)),
  )
}

/** Everything that the mirror may have made here: what leaving the clusterset takes away. */
export function ownedByMirror(world: MirroredObjects & { readonly own: string }): MirroredObjects {
  return {
    serviceImports: world.serviceImports,
    slices: world.slices.filter(({ metadata }) => metadata.labels?.[LABEL_MANAGED_BY] === MANAGED_BY_SEALANE),
    clusters: world.clusters.filter(({ spec }) => spec.id !== world.own),
    endpoints: world.endpoints.filter(({ spec }) => spec.cluster !== world.own),
  }
}
