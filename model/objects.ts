/**
 * Kubernetes-shaped objects with only the fields that Sealane reads or writes. Fields of objects that other controllers
 * write (Service, Node, Pod, EndpointSlice …) are optional wherever the API lets them be absent. Sealane's own kinds
 * belong to sealane.io/v1alpha1.
 */
import type { OpenConnections } from './member-status.ts'
import type { ConditionReason } from './reasons/reasons.ts'

/** The owner of an object. Kubernetes removes objects whose owner is gone. */
export interface OwnerReference {
  readonly apiVersion: string
  readonly kind: string
  readonly name: string
  readonly uid: string
}

export interface ObjectMeta {
  readonly name: string
  readonly namespace?: string
  readonly uid?: string
  readonly resourceVersion?: string
  readonly generation?: number
  /** RFC 3339. */
  readonly creationTimestamp?: string
  readonly deletionTimestamp?: string
  readonly labels?: Readonly<Record<string, string>>
  readonly annotations?: Readonly<Record<string, string>>
  /** Only on the kinds in OWNED_BY_NODES. */
  readonly ownerReferences?: readonly OwnerReference[]
}

/** metav1.Condition. */
export interface Condition {
  readonly type: string
  readonly status: 'True' | 'False' | 'Unknown'
  /** Typed for conditions that we write; other controllers may write other reasons. */
  readonly reason: ConditionReason
  readonly message: string
  /** RFC 3339, seconds. */
  readonly lastTransitionTime: string
  readonly observedGeneration?: number
}

interface Base<K extends string, V extends string> {
  readonly apiVersion: V
  readonly kind: K
  readonly metadata: ObjectMeta
}

export type Namespace = Base<'Namespace', 'v1'> & { readonly status?: { readonly phase?: string } }

export type Node = Base<'Node', 'v1'> & {
  readonly spec?: {
    readonly podCIDR?: string
    readonly podCIDRs?: readonly string[]
    /** Cordoned: the scheduler puts no new pods on it. */
    readonly unschedulable?: boolean
    readonly taints?: readonly { readonly key: string; readonly effect?: string; readonly value?: string }[]
  }
  readonly status?: { readonly addresses?: readonly { readonly type: string; readonly address: string }[] }
}

export type Pod = Base<'Pod', 'v1'> & {
  readonly spec?: { readonly nodeName?: string; readonly hostname?: string; readonly hostNetwork?: boolean }
  readonly status?: {
    readonly phase?: string
    readonly podIP?: string
    readonly podIPs?: readonly { readonly ip: string }[]
  }
}

export type Protocol = 'TCP' | 'UDP' | 'SCTP'

export interface ServicePort {
  readonly name?: string
  readonly protocol?: Protocol
  readonly port: number
  readonly targetPort?: number | string
  readonly appProtocol?: string
}

export interface SessionAffinityConfig {
  readonly clientIP?: { readonly timeoutSeconds?: number }
}

export type Service = Base<'Service', 'v1'> & {
  readonly spec?: {
    readonly type?: 'ClusterIP' | 'NodePort' | 'LoadBalancer' | 'ExternalName'
    readonly clusterIP?: string
    readonly clusterIPs?: readonly string[]
    readonly ipFamilies?: readonly ('IPv4' | 'IPv6')[]
    readonly ports?: readonly ServicePort[]
    readonly sessionAffinity?: 'ClientIP' | 'None'
    readonly sessionAffinityConfig?: SessionAffinityConfig
    readonly internalTrafficPolicy?: string
    readonly trafficDistribution?: string
  }
}

export interface EndpointPort {
  readonly name?: string
  readonly protocol?: Protocol
  /** The target port, on which the pod listens. */
  readonly port?: number
  readonly appProtocol?: string
}

export interface SliceEndpoint {
  readonly addresses: readonly string[]
  readonly hostname?: string
  readonly nodeName?: string
  readonly zone?: string
  /** The zones that the endpoint is meant for; if absent, it is meant for its own zone. */
  readonly hints?: { readonly forZones?: readonly { readonly name: string }[] }
  readonly conditions?: { readonly ready?: boolean; readonly serving?: boolean; readonly terminating?: boolean }
  /** The object that has this address. Imported slices have none: it would name an object of another cluster. */
  readonly targetRef?: { readonly kind?: string; readonly name?: string; readonly uid?: string }
}

/** discovery.k8s.io/v1. Imported slices carry LABEL_SERVICE_NAME and LABEL_SOURCE_CLUSTER. */
export type EndpointSlice = Base<'EndpointSlice', 'discovery.k8s.io/v1'> & {
  readonly addressType: 'IPv4' | 'IPv6' | 'FQDN'
  readonly endpoints?: readonly SliceEndpoint[]
  readonly ports?: readonly EndpointPort[]
}

export type ServiceExport = Base<'ServiceExport', 'multicluster.x-k8s.io/v1beta1'> & {
  readonly spec?: {
    readonly exportedLabels?: Readonly<Record<string, string>>
    readonly exportedAnnotations?: Readonly<Record<string, string>>
  }
  readonly status?: { readonly conditions?: readonly Condition[] }
}

export type ServiceImportType = 'ClusterSetIP' | 'Headless'

export interface ImportPort {
  readonly name?: string
  readonly protocol: Protocol
  readonly port: number
  readonly appProtocol?: string
}

export interface ServiceImportSpec {
  /** Always written, even if it is empty. */
  readonly ports: readonly ImportPort[]
  readonly type: ServiceImportType
  readonly ips?: readonly string[]
  readonly ipFamilies?: readonly ('IPv4' | 'IPv6')[]
  readonly sessionAffinity?: 'ClientIP' | 'None'
  readonly sessionAffinityConfig?: SessionAffinityConfig
  readonly internalTrafficPolicy?: string
  readonly trafficDistribution?: string
}

export type ServiceImport = Base<'ServiceImport', 'multicluster.x-k8s.io/v1beta1'> & {
  readonly spec: ServiceImportSpec
  readonly status?: {
    readonly clusters?: readonly { readonly cluster: string }[]
    readonly conditions?: readonly Condition[]
    readonly endpointSliceObjects?: 'Present' | 'Absent'
  }
}

/** A member of the clusterset, this one included. Cluster-scoped; metadata.name is the cluster id. */
export type Cluster = Base<'Cluster', 'sealane.io/v1alpha1'> & {
  readonly spec: ClusterSpec
  readonly status?: { readonly conditions?: readonly Condition[] }
}

export interface ClusterSpec {
  readonly id: string
  /** A small number from the broker, unique in the clusterset; it determines the lane addresses. */
  readonly index: number
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  /** In the order and of the sizes of podCIDRs; empty if the cluster's own addresses are unique. */
  readonly globalCIDRs: readonly string[]
  readonly labels: Readonly<Record<string, string>>
}

export interface EndpointCandidate {
  readonly kind: 'private' | 'public' | 'observed' | 'loadBalancer'
  readonly address: string
  readonly port: number
}

/** One gateway of one cluster on one lane. Cluster-scoped; metadata.name is endpointName(). */
export type Endpoint = Base<'Endpoint', 'sealane.io/v1alpha1'> & { readonly spec: EndpointSpec }

export interface EndpointSpec {
  readonly cluster: string
  readonly node: string
  readonly lane: number
  /** WireGuard public key, base64. */
  readonly publicKey: string
  /** The key that will replace the current one, in the same form. Absent if none is announced. */
  readonly nextPublicKey?: string
  /** Best first. Empty if no gateway can call this one: it calls the others. */
  readonly candidates: readonly EndpointCandidate[]
  readonly capabilities: readonly string[]
}

export type ConnectionState = 'connecting' | 'up' | 'down'

/**
 * Why a connection does not come up, as far as one end can tell. NeitherCallable: neither end can be called from
 * outside. AnswersLost: packets of the far end arrive, but ours do not reach it. NoneAnswers: packets arrive, but none
 * answers ours.
 */
export type ConnectionCause = 'NeitherCallable' | 'AnswersLost' | 'NoneAnswers'

export interface ConnectionStatus {
  readonly cluster: string
  /** The lane of this end. */
  readonly lane: number
  /** The lane of the far end, in its cluster. Absent from releases up to 0.1: the same as `lane`. */
  readonly remoteLane?: number
  /** metadata.name of the remote Endpoint. */
  readonly endpoint: string
  readonly state: ConnectionState
  readonly message: string
  /** Absent if it is not known, or if the connection is up. */
  readonly cause?: ConnectionCause
  /**
   * True if the connection is up but is not used because it flaps; traffic takes other routes if there are any. Absent
   * means false.
   */
  readonly held?: boolean
  /** The address:port that the tunnel uses; absent while it is not known. */
  readonly usingAddress?: string
  /** Whether the far end's address is not among its candidates: it is behind NAT. */
  readonly usingNat: boolean
  readonly rttMs?: number
  /** Share of the recent probes without an answer, 0 to 1. */
  readonly loss?: number
  /**
   * Size in octets of the largest packet that reaches the far end. Absent from releases up to 0.1, and if not known.
   */
  readonly mtu?: number
  /** The same for packets from the far end, as the far end reports it. */
  readonly receiveMtu?: number
  readonly handshakeAgeSeconds?: number
  readonly rxBytes: number
  readonly txBytes: number
}

/** Written by the gateway process of one node, status only. Cluster-scoped; metadata.name is the node. */
export type Gateway = Base<'Gateway', 'sealane.io/v1alpha1'> & {
  readonly status?: {
    readonly version: string
    /** One entry for each device. */
    readonly lanes: readonly {
      readonly lane: number
      /** The lane of the gateways that the device leads to. Absent from releases up to 0.1: the same as `lane`. */
      readonly remoteLane?: number
      readonly device: string
      readonly mtu: number
      readonly driver: string
    }[]
    readonly connections: readonly ConnectionStatus[]
    /** RFC 3339: the time of the last write, at least every HEARTBEAT_MS. Absent from earlier releases. */
    readonly heartbeatTime?: string
    /** Connections that are up, of all: `2/3`. For `kubectl get`, which cannot count. */
    readonly up?: string
    /** CONDITION_READY; the agent sets it to Unknown while the heartbeat does not change. */
    readonly conditions?: readonly Condition[]
    readonly failure?: string
    /** The reason code of the failure (model/reasons). Absent from earlier releases. */
    readonly failureReason?: string
  }
}

/** Written by the routeagent process of one node, status only. Cluster-scoped; metadata.name is the node. */
export type RouteAgent = Base<'RouteAgent', 'sealane.io/v1alpha1'> & {
  readonly status?: {
    readonly version: string
    readonly clusters: readonly {
      readonly cluster: string
      readonly gateways: readonly string[]
      readonly mtu: number
    }[]
    /** Clusters that at least one gateway leads to, of all: `2/3`. For `kubectl get`, which cannot count. */
    readonly reached?: string
    /**
     * The ranges of this node's pods, IPv4 first, sorted: model/addresses/pod-ranges.ts. Absent from earlier releases.
     */
    readonly podRanges?: readonly string[]
    /**
     * What this node needs outside the lanes: its network, default gateways, name servers. Absent from earlier
     * releases.
     */
    readonly underlay?: readonly string[]
    /** Connections of this node's pods with pods of other clusters. Absent if not known, as from earlier releases. */
    readonly openConnections?: OpenConnections
    /** Nodes of this cluster that do not answer this node's probes over the overlay. Absent if none is known. */
    readonly silentNodes?: readonly string[]
    readonly conditions?: readonly Condition[]
    readonly failure?: string
    /** The reason code of the failure (model/reasons). Absent from earlier releases. */
    readonly failureReason?: string
  }
}

/** Whether this site belongs to a clusterset. Cluster-scoped, one object named "self". */
export type Membership = Base<'Membership', 'sealane.io/v1alpha1'> & {
  readonly spec: {
    readonly clusterId: string
    /** leaving: every node removes Sealane from its kernel, then its Gateway or RouteAgent object. */
    readonly phase: 'joined' | 'leaving'
    readonly clusterset: string
    readonly globalRange: string
    readonly clustersetIpRange: string
    /**
     * This cluster's address as the broker saw it at the join; absent if the broker could not know whose address it
     * was. Gateways decide again whether to use it (gateway/reach/plan-candidates.ts).
     */
    readonly observedAddress?: string
  }
}

/** About API (KEP-2149): a fact about this cluster. Cluster-scoped. */
export type ClusterProperty = Base<'ClusterProperty', 'about.k8s.io/v1beta1'> & {
  readonly spec: { readonly value: string }
}

/** coordination.k8s.io/v1: a claim that expires unless its holder renews it. */
export type Lease = Base<'Lease', 'coordination.k8s.io/v1'> & {
  readonly spec?: {
    readonly holderIdentity?: string
    readonly leaseDurationSeconds?: number
    /** RFC 3339 with microseconds. */
    readonly acquireTime?: string
    readonly renewTime?: string
    readonly leaseTransitions?: number
  }
}

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
])

/** The kinds that components on a node write about it; they are removed with its Node (model/node-owner.ts). */
export const NODE_OWNED_KINDS = ['Endpoint', 'Gateway', 'RouteAgent'] as const satisfies readonly Kind[]
export const OWNED_BY_NODES: ReadonlySet<Kind> = new Set<Kind>(NODE_OWNED_KINDS)

export const MEMBERSHIP_NAME = 'self'

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
