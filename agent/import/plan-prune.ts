/**
 * Which of the mirrored objects may be removed: only those that are known to be withdrawn. An object that a record is
 * only missing for, because the broker has not shown it, stays. Pure.
 */
import {
  APP_MANAGED_BY_SEALANE,
  type Cluster,
  type Endpoint,
  type EndpointSlice,
  type KubeObject,
  LABEL_APP_MANAGED_BY,
  LABEL_MANAGED_BY,
  LABEL_SOURCE_CLUSTER,
  MANAGED_BY_SEALANE,
  type ServiceImport,
  objectKeyText,
} from '../../model/model.ts'

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
  /** Whether all records of a namespace are here, so that what is missing counts. */
  readonly holds: (namespace: string) => boolean
  /** Clusters taken as dead: their slices go, what they export is remembered. */
  readonly expired: ReadonlySet<string>
  /** Clusters whose pods would take what this one needs: routes to them must go, whoever still announces them. */
  readonly harmful: ReadonlySet<string>
  /** That exist here and are not terminating; what was mirrored into any other goes. */
  readonly namespaces: ReadonlySet<string>
}

/** Objects to remove, ServiceImports first: who no longer finds the service asks for no endpoint. */
export function planPrune(world: PruneWorld): KubeObject[] {
  const gone = (cluster: string | undefined): boolean => cluster !== undefined && world.certain.has(cluster)
  const known = world.clusters.map(({ spec }) => spec.id)
  const mirrored = ownedByMirror(world)
  const homeless = ({ metadata }: KubeObject): boolean => !world.namespaces.has(metadata.namespace ?? '')
  const imports = mirrored.serviceImports.filter((object) => {
    if (homeless(object)) return true
    if (world.kept.has(objectKeyText(object))) return false
    // One that was written without getting its status may be of any cluster.
    const clusters = object.status?.clusters?.map(({ cluster }) => cluster) ?? known
    // Nobody is known of whom anything is certain: no word has come yet.
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

/** Everything that the mirror may have made here: what leaving the clusterset takes away. */
export function ownedByMirror(world: MirroredObjects & { readonly own: string }): MirroredObjects {
  return {
    serviceImports: world.serviceImports.filter(
      ({ metadata }) => metadata.labels?.[LABEL_APP_MANAGED_BY] === APP_MANAGED_BY_SEALANE,
    ),
    slices: world.slices.filter(({ metadata }) => metadata.labels?.[LABEL_MANAGED_BY] === MANAGED_BY_SEALANE),
    clusters: world.clusters.filter(({ spec }) => spec.id !== world.own),
    endpoints: world.endpoints.filter(({ spec }) => spec.cluster !== world.own),
  }
}
