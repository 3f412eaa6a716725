/**
 * Which of a service's endpoints this node may use, by internalTrafficPolicy and trafficDistribution of the
 * ServiceImport. `Local` is as kube-proxy does it for a Service; zones are by the hints of each endpoint, else by its
 * `zone`, whereas kube-proxy knows hints alone, and uses them only where every ready endpoint has one. Pure.
 */
import type { ServiceImportSpec, SliceEndpoint } from '../../model/objects.ts'

/** Where this node is. */
export interface NodePlace {
  readonly node: string
  /** This cluster's id: a node of the same name in another cluster is another node. */
  readonly self: string
  /** Undefined where the Node has no zone. */
  readonly zone: string | undefined
}

/** `node`: this node's and no others. `prefer`: the first of these that has any, else all. */
export type LocalityRule = { readonly kind: 'node' } | { readonly kind: 'prefer'; readonly order: readonly Locality[] }

/** `node`: on this node. `zone`: meant for this node's zone. */
export type Locality = 'node' | 'zone'

const ALL: LocalityRule = { kind: 'prefer', order: [] }
const DISTRIBUTIONS: ReadonlyMap<string, LocalityRule> = new Map([
  ['PreferClose', { kind: 'prefer', order: ['zone'] }],
  ['PreferSameZone', { kind: 'prefer', order: ['zone'] }],
  ['PreferSameNode', { kind: 'prefer', order: ['node', 'zone'] }],
])

/** The policy goes before the preference. A preference that is not known is none, as Kubernetes says. */
export function localityRule(spec: ServiceImportSpec): LocalityRule {
  if (spec.internalTrafficPolicy === 'Local') return { kind: 'node' }
  return DISTRIBUTIONS.get(spec.trafficDistribution ?? '') ?? ALL
}

/** Takes the cluster that the endpoint is in. */
export function isNear(locality: Locality, endpoint: SliceEndpoint, cluster: string, place: NodePlace): boolean {
  if (locality === 'node') return cluster === place.self && endpoint.nodeName === place.node
  if (place.zone === undefined) return false
  const hinted = endpoint.hints?.forZones ?? []
  return hinted.length > 0 ? hinted.some(({ name }) => name === place.zone) : endpoint.zone === place.zone
}
