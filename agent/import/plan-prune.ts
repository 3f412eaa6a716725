/**
 * Plans which mirrored objects are removed: only those that are known to be withdrawn. An object whose record is only
 * missing, because the broker has not shown it, stays. Pure.
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
import { isDerived } from '../../model/services/services.ts'

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
