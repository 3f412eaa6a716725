/** The API path of each kind. */
import { CLUSTER_SCOPED, type Kind, type ObjectKinds } from '../../model/model.ts'

export interface KindPlace {
  readonly apiVersion: string
  /** Lower-case plural, as in URLs and RBAC rules. */
  readonly plural: string
}

export const KIND_PLACES: { readonly [K in Kind]: { apiVersion: ObjectKinds[K]['apiVersion']; plural: string } } = {
  Namespace: { apiVersion: 'v1', plural: 'namespaces' },
  Node: { apiVersion: 'v1', plural: 'nodes' },
  Pod: { apiVersion: 'v1', plural: 'pods' },
  Service: { apiVersion: 'v1', plural: 'services' },
  EndpointSlice: { apiVersion: 'discovery.k8s.io/v1', plural: 'endpointslices' },
  ServiceExport: { apiVersion: 'multicluster.x-k8s.io/v1beta1', plural: 'serviceexports' },
  ServiceImport: { apiVersion: 'multicluster.x-k8s.io/v1beta1', plural: 'serviceimports' },
  Cluster: { apiVersion: 'sealane.io/v1alpha1', plural: 'clusters' },
  Endpoint: { apiVersion: 'sealane.io/v1alpha1', plural: 'endpoints' },
  Gateway: { apiVersion: 'sealane.io/v1alpha1', plural: 'gateways' },
  RouteAgent: { apiVersion: 'sealane.io/v1alpha1', plural: 'routeagents' },
  Membership: { apiVersion: 'sealane.io/v1alpha1', plural: 'memberships' },
  ClusterProperty: { apiVersion: 'about.k8s.io/v1beta1', plural: 'clusterproperties' },
  AccessPolicy: { apiVersion: 'sealane.io/v1alpha1', plural: 'accesspolicies' },
  ClusterAccessPolicy: { apiVersion: 'sealane.io/v1alpha1', plural: 'clusteraccesspolicies' },
  TrafficPolicy: { apiVersion: 'sealane.io/v1alpha1', plural: 'trafficpolicies' },
  ClusterTrafficPolicy: { apiVersion: 'sealane.io/v1alpha1', plural: 'clustertrafficpolicies' },
  Topology: { apiVersion: 'sealane.io/v1alpha1', plural: 'topologies' },
  Lease: { apiVersion: 'coordination.k8s.io/v1', plural: 'leases' },
}

/** Returns a path such as `/api/v1/namespaces/shop/services/web/status`; without a name, that of the collection. */
export function kindPath(kind: Kind, namespace?: string, name?: string, subresource?: string): string {
  const scope = CLUSTER_SCOPED.has(kind) ? undefined : namespace
  return resourcePath(KIND_PLACES[kind], scope, name, subresource)
}

/** Like kindPath(), for any resource; without a namespace for cluster-scoped ones and for all namespaces at once. */
export function resourcePath(place: KindPlace, namespace?: string, name?: string, subresource?: string): string {
  const { apiVersion, plural } = place
  const parts = [
    groupPath(apiVersion),
    ...(namespace === undefined ? [] : ['namespaces', encodeURIComponent(namespace)]),
    plural,
    ...(name === undefined ? [] : [encodeURIComponent(name)]),
    ...(subresource === undefined ? [] : [subresource]),
  ]
  return parts.join('/')
}

/** Returns `/api/v1` or `/apis/discovery.k8s.io/v1`. */
export function groupPath(apiVersion: string): string {
  return apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`
}

export interface ObjectType {
  readonly apiVersion: string
  readonly kind: string
}

export interface ObjectRef extends ObjectType {
  readonly name: string
  /** Absent if the kind has no namespace. */
  readonly namespace?: string | undefined
}

interface Named extends ObjectType {
  readonly metadata: { readonly name: string; readonly namespace?: string | undefined }
}

export function refOf({ apiVersion, kind, metadata: { name, namespace } }: Named): ObjectRef {
  return { apiVersion, kind, name, ...(namespace === undefined ? {} : { namespace }) }
}

/** Formats as `Deployment sealane-system/sealane-agent`. */
export function titleOf({ kind, namespace, name }: Omit<ObjectRef, 'apiVersion'>): string {
  return `${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`
}
