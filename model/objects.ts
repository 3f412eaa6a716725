/**
 * Kubernetes-shaped objects with only the fields that Sealane reads or writes. Fields of objects that other controllers
 * write (Service, Node, Pod, EndpointSlice …) are optional wherever the API lets them be absent. Sealane's own kinds
 * belong to sealane.io/v1alpha1. All kinds are described in model/kinds; the types follow from there.
 */
import type {
  ACCESS_POLICY_FIELDS,
  BackendHealth,
  CLUSTER_ACCESS_POLICY_FIELDS,
  CLUSTER_FIELDS,
  CLUSTER_PROPERTY_FIELDS,
  Described,
  ENDPOINT_FIELDS,
  GATEWAY_FIELDS,
  ENDPOINT_SLICE_FIELDS,
  LEASE_FIELDS,
  MEMBERSHIP_FIELDS,
  NAMESPACE_FIELDS,
  NODE_FIELDS,
  ObjectMeta,
  POD_FIELDS,
  ROUTE_AGENT_FIELDS,
  SERVICE_FIELDS,
  SERVICE_EXPORT_FIELDS,
  SERVICE_IMPORT_FIELDS,
  CLUSTER_TRAFFIC_POLICY_FIELDS,
  TOPOLOGY_OBJECT_FIELDS,
  TRAFFIC_POLICY_FIELDS,
} from './kinds/kinds.ts'

export type {
  BackendHealth,
  ClusterSelector,
  Condition,
  ConnectionCause,
  ImportPort,
  ObjectMeta,
  OwnerReference,
  PropertySelector,
} from './kinds/kinds.ts'
export type { Protocol } from './values/values.ts'

interface Base<K extends string, V extends string> {
  readonly apiVersion: V
  readonly kind: K
  readonly metadata: ObjectMeta
}

export type Namespace = Base<'Namespace', 'v1'> & Described<typeof NAMESPACE_FIELDS>

export type Node = Base<'Node', 'v1'> & Described<typeof NODE_FIELDS>

export type Pod = Base<'Pod', 'v1'> & Described<typeof POD_FIELDS>

export type Service = Base<'Service', 'v1'> & Described<typeof SERVICE_FIELDS>
type ServiceSpec = NonNullable<Service['spec']>
export type ServicePort = NonNullable<ServiceSpec['ports']>[number]
export type SessionAffinityConfig = NonNullable<ServiceSpec['sessionAffinityConfig']>

/** discovery.k8s.io/v1. Imported slices carry LABEL_SERVICE_NAME and LABEL_SOURCE_CLUSTER. */
export type EndpointSlice = Base<'EndpointSlice', 'discovery.k8s.io/v1'> &
  Described<typeof ENDPOINT_SLICE_FIELDS> & {
    /** Only at a site without Kubernetes: the results of the slice's check (model/services/backend-check.ts). */
    readonly status?: BackendHealth
  }
export type EndpointPort = NonNullable<EndpointSlice['ports']>[number]
export type SliceEndpoint = NonNullable<EndpointSlice['endpoints']>[number]

export type ServiceExport = Base<'ServiceExport', 'multicluster.x-k8s.io/v1beta1'> &
  Described<typeof SERVICE_EXPORT_FIELDS>

export type ServiceImport = Base<'ServiceImport', 'multicluster.x-k8s.io/v1beta1'> &
  Described<typeof SERVICE_IMPORT_FIELDS>
export type ServiceImportSpec = ServiceImport['spec']
export type ServiceImportType = ServiceImportSpec['type']

/** A member of the clusterset, this one included. Cluster-scoped; metadata.name is the cluster id. */
export type Cluster = Base<'Cluster', 'sealane.io/v1alpha1'> & Described<typeof CLUSTER_FIELDS>
export type ClusterSpec = Cluster['spec']

/** One gateway of one cluster on one lane. Cluster-scoped; metadata.name is endpointName(). */
export type Endpoint = Base<'Endpoint', 'sealane.io/v1alpha1'> & Described<typeof ENDPOINT_FIELDS>
export type EndpointSpec = Endpoint['spec']
export type EndpointCandidate = EndpointSpec['candidates'][number]

/** Written by the gateway process of one node, status only. Cluster-scoped; metadata.name is the node. */
export type Gateway = Base<'Gateway', 'sealane.io/v1alpha1'> & Described<typeof GATEWAY_FIELDS>
export type ConnectionStatus = NonNullable<Gateway['status']>['connections'][number]
export type ConnectionState = ConnectionStatus['state']
/** A way by which the far end of a connection may be reached. */
export type LinkCandidate = NonNullable<ConnectionStatus['candidates']>[number]
/** A relay as a gateway reports it. */
export type KnownRelay = NonNullable<NonNullable<Gateway['status']>['relays']>[number]

/** Written by the routeagent process of one node, status only. Cluster-scoped; metadata.name is the node. */
export type RouteAgent = Base<'RouteAgent', 'sealane.io/v1alpha1'> & Described<typeof ROUTE_AGENT_FIELDS>

/** Whether this site belongs to a clusterset. Cluster-scoped, one object named "self". */
export type Membership = Base<'Membership', 'sealane.io/v1alpha1'> & Described<typeof MEMBERSHIP_FIELDS>

/** To whom services of its namespace are offered (model/access). */
export type AccessPolicy = Base<'AccessPolicy', 'sealane.io/v1alpha1'> & Described<typeof ACCESS_POLICY_FIELDS>
export type AccessCallers = AccessPolicy['spec']['from'][number]
export type LabelSelector = NonNullable<AccessCallers['selector']>

/** The default for services without an AccessPolicy. Cluster-scoped, one object named "default". */
export type ClusterAccessPolicy = Base<'ClusterAccessPolicy', 'sealane.io/v1alpha1'> &
  Described<typeof CLUSTER_ACCESS_POLICY_FIELDS>

/** How this cluster divides what it sends to services of its namespace (model/services). */
export type TrafficPolicy = Base<'TrafficPolicy', 'sealane.io/v1alpha1'> & Described<typeof TRAFFIC_POLICY_FIELDS>
export type TrafficTier = NonNullable<TrafficPolicy['spec']['order']>[number]
export type TrafficService = NonNullable<NonNullable<TrafficPolicy['status']>['services']>[number]

/** The same for services without a TrafficPolicy. Cluster-scoped, one object named "default". */
export type ClusterTrafficPolicy = Base<'ClusterTrafficPolicy', 'sealane.io/v1alpha1'> &
  Described<typeof CLUSTER_TRAFFIC_POLICY_FIELDS>

/** A topology as an object in the cluster of the broker. Cluster-scoped; the one named "default" counts. */
export type TopologyObject = Base<'Topology', 'sealane.io/v1alpha1'> & Described<typeof TOPOLOGY_OBJECT_FIELDS>

/** About API (KEP-2149): a fact about this cluster. Cluster-scoped. */
export type ClusterProperty = Base<'ClusterProperty', 'about.k8s.io/v1beta1'> &
  Described<typeof CLUSTER_PROPERTY_FIELDS>

/** coordination.k8s.io/v1: a claim that expires unless its holder renews it. */
export type Lease = Base<'Lease', 'coordination.k8s.io/v1'> & Described<typeof LEASE_FIELDS>

/** All kinds that a ClusterApi serves. */
export interface ObjectKinds {
  readonly Namespace: Namespace
  readonly Node: Node
  readonly Pod: Pod
  readonly Service: Service
  readonly EndpointSlice: EndpointSlice
  readonly ServiceExport: ServiceExport
  readonly ServiceImport: ServiceImport
  readonly Cluster: Cluster
  readonly Endpoint: Endpoint
  readonly Gateway: Gateway
  readonly RouteAgent: RouteAgent
  readonly Membership: Membership
  readonly ClusterProperty: ClusterProperty
  readonly Lease: Lease
  readonly AccessPolicy: AccessPolicy
  readonly ClusterAccessPolicy: ClusterAccessPolicy
  readonly TrafficPolicy: TrafficPolicy
  readonly ClusterTrafficPolicy: ClusterTrafficPolicy
  readonly Topology: TopologyObject
}
export type Kind = keyof ObjectKinds
export type KubeObject = ObjectKinds[Kind]

export const CLUSTER_SCOPED: ReadonlySet<Kind> = new Set<Kind>([
  'Namespace',
  'Node',
  'Cluster',
  'Endpoint',
  'Gateway',
  'RouteAgent',
  'Membership',
  'ClusterProperty',
  'ClusterAccessPolicy',
  'ClusterTrafficPolicy',
  'Topology',
])

/** The kinds that components on a node write about it; they are removed with its Node (model/node-owner.ts). */
export const NODE_OWNED_KINDS = ['Endpoint', 'Gateway', 'RouteAgent'] as const satisfies readonly Kind[]
export const OWNED_BY_NODES: ReadonlySet<Kind> = new Set<Kind>(NODE_OWNED_KINDS)

export const MEMBERSHIP_NAME = 'self'
export const CLUSTER_ACCESS_POLICY_NAME = 'default'
export const CLUSTER_TRAFFIC_POLICY_NAME = 'default'
export const TOPOLOGY_NAME = 'default'

/** A cluster id has no dots, but a node name may; so no two gateways of the clusterset have the same name. */
export function endpointName(cluster: string, node: string, lane: number): string {
  return `${cluster}.${node}-lane${lane}`
}

// One string key for each object of the local API.

/** `Kind/namespace/name`, or `Kind/name` without a namespace; no part contains '/'. */
export function objectKeyText(object: { readonly kind: Kind; readonly metadata: ObjectMeta }): string {
  const { namespace, name } = object.metadata
  return namespace === undefined ? `${object.kind}/${name}` : `${object.kind}/${namespace}/${name}`
}
