/**
 * Kubernetes-shaped objects as the components use them: the fields that Sealane reads or writes, no more.
 * Fields of objects that others write (Service, Node, Pod, EndpointSlice …) are optional wherever the API
 * lets them be absent. Sealane's own kinds belong to sealane.io/v1alpha1.
 */
import type { OpenConnections } from './member-status.ts'
import type { ConditionReason } from './reasons/reasons.ts'

/** Whose object it is: a Kubernetes cluster removes what belongs to something that is gone. */
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
  /** Of the kinds in OWNED_BY_NODES only. */
  readonly ownerReferences?: readonly OwnerReference[]
}

/** metav1.Condition. */
export interface Condition {
  readonly type: string
  readonly status: 'True' | 'False' | 'Unknown'
  /** Of conditions that we write; other controllers may have written others. */
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
    /** Cordoned: no new pods. */
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
  /** The target port: what the pod listens on. */
  readonly port?: number
  readonly appProtocol?: string
}

export interface SliceEndpoint {
  readonly addresses: readonly string[]
  readonly hostname?: string
  readonly nodeName?: string
  readonly zone?: string
  /** For which zones the endpoint is meant; without it, for its own. */
  readonly hints?: { readonly forZones?: readonly { readonly name: string }[] }
  readonly conditions?: { readonly ready?: boolean; readonly serving?: boolean; readonly terminating?: boolean }
  /** What the address is of. Imported slices have none: it would name an object of another cluster. */
  readonly targetRef?: { readonly kind?: string; readonly name?: string; readonly uid?: string }
}

/** discovery.k8s.io/v1. Imported ones carry LABEL_SERVICE_NAME and LABEL_SOURCE_CLUSTER. */
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
  /** Always written, also when empty. */
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
  /** Small number given by the broker, unique in the clusterset; lane addresses follow from it. */
  readonly index: number
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  /** Same order and sizes as podCIDRs; empty when the cluster's own addresses are unique. */
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
  /** The key that this gateway is about to take instead, in the same form. Absent: none is announced. */
  readonly nextPublicKey?: string
  /** Best first. Empty when nobody can call this gateway: it calls the others. */
  readonly candidates: readonly EndpointCandidate[]
  readonly capabilities: readonly string[]
}

export type ConnectionState = 'connecting' | 'up' | 'down'

/**
 * What keeps a connection from coming up, as far as one end can tell. NeitherCallable: neither end can be called from
 * outside. AnswersLost: packets of the far end arrive, and ours do not get there. NoneAnswers: packets arrive, and none
 * of them answers ours.
 */
export type ConnectionCause = 'NeitherCallable' | 'AnswersLost' | 'NoneAnswers'

export interface ConnectionStatus {
  readonly cluster: string
  /** Of this end. */
  readonly lane: number
  /** Of the far end, in its cluster. Absent from releases up to 0.1: the same as `lane`. */
  readonly remoteLane?: number
  /** metadata.name of the remote Endpoint. */
  readonly endpoint: string
  readonly state: ConnectionState
  readonly message: string
  /** Absent: not known, or it is up. */
  readonly cause?: ConnectionCause
  /** It is up, and held out of use since it flaps: other ways are taken where there are any. Absent: it is not. */
  readonly held?: boolean
  /** address:port that the tunnel really uses; absent while unknown. */
  readonly usingAddress?: string
  /** The far end's address is not one of its candidates: it is behind address translation. */
  readonly usingNat: boolean
  readonly rttMs?: number
  /** Share of the last probes without an answer, 0 to 1. */
  readonly loss?: number
  /** Octets of the largest packet that gets to the far end. Absent from releases up to 0.1, and where not known. */
  readonly mtu?: number
  /** The same for what comes from there, as the far end says. */
  readonly receiveMtu?: number
  readonly handshakeAgeSeconds?: number
  readonly rxBytes: number
  readonly txBytes: number
}

/** Written by the gateway process of one node, status only. Cluster-scoped; metadata.name is the node. */
export type Gateway = Base<'Gateway', 'sealane.io/v1alpha1'> & {
  readonly status?: {
    readonly version: string
    /** One for each device. */
    readonly lanes: readonly {
      readonly lane: number
      /** Of the gateways that the device leads to. Absent from releases up to 0.1: the same as `lane`. */
      readonly remoteLane?: number
      readonly device: string
      readonly mtu: number
      readonly driver: string
    }[]
    readonly connections: readonly ConnectionStatus[]
    /** RFC 3339: when this was written, at least every HEARTBEAT_MS. Absent from releases that did not write it. */
    readonly heartbeatTime?: string
    /** Connections that are up, of all: `2/3`. For `kubectl get`, which cannot count. */
    readonly up?: string
    /** CONDITION_READY, which the agent sets to Unknown while the heartbeat does not change. */
    readonly conditions?: readonly Condition[]
    readonly failure?: string
    /** Its name (model/reasons). Absent from earlier releases. */
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
    /** Clusters that some gateway leads to, of all: `2/3`. For `kubectl get`, which cannot count. */
    readonly reached?: string
    /**
     * Where this node's pods are, IPv4 first, sorted: model/addresses/pod-ranges.ts. Absent from releases that did not
     * report it.
     */
    readonly podRanges?: readonly string[]
    /**
     * What this node needs outside the lanes: its network, default gateways, name servers. Absent from earlier
     * releases.
     */
    readonly underlay?: readonly string[]
    /** Connections of this node's pods with pods of other clusters. Absent: not known, as from earlier releases. */
    readonly openConnections?: OpenConnections
    /** Nodes of this cluster that do not answer this node's probes over the overlay. Absent: none is known. */
    readonly silentNodes?: readonly string[]
    readonly conditions?: readonly Condition[]
    readonly failure?: string
    /** Its name (model/reasons). Absent from earlier releases. */
    readonly failureReason?: string
  }
}

/** Whether this site belongs to a clusterset. Cluster-scoped, one object named "self". */
export type Membership = Base<'Membership', 'sealane.io/v1alpha1'> & {
  readonly spec: {
    readonly clusterId: string
    /** leaving: every node takes Sealane out of its kernel, then removes its Gateway or RouteAgent object. */
    readonly phase: 'joined' | 'leaving'
    readonly clusterset: string
    readonly globalRange: string
    readonly clustersetIpRange: string
    /**
     * This cluster's address as the broker saw it when joining; absent where the broker could not know whose that was.
     * Gateways decide again whether it counts (gateway/reach/plan-candidates.ts).
     */
    readonly observedAddress?: string
  }
}

/** About API (KEP-2149): a fact about this cluster. Cluster-scoped. */
export type ClusterProperty = Base<'ClusterProperty', 'about.k8s.io/v1beta1'> & {
  readonly spec: { readonly value: string }
}

/** coordination.k8s.io/v1: something that holds for a time and has to be renewed. */
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

/** Every kind that a ClusterApi serves. */
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

/** What the parts on a node write about it: goes with its Node (model/node-owner.ts). */
export const NODE_OWNED_KINDS = ['Endpoint', 'Gateway', 'RouteAgent'] as const satisfies readonly Kind[]
export const OWNED_BY_NODES: ReadonlySet<Kind> = new Set<Kind>(NODE_OWNED_KINDS)

export const MEMBERSHIP_NAME = 'self'

/** A cluster id has no dots and a node name may: so no two gateways of the clusterset have equal names. */
export function endpointName(cluster: string, node: string, lane: number): string {
  return `${cluster}.${node}-lane${lane}`
}

// One string per object of the local API.

/** `Kind/namespace/name`, without namespace `Kind/name`; '/' occurs in none of the parts. */
export function objectKeyText(object: { readonly kind: Kind; readonly metadata: ObjectMeta }): string {
  const { namespace, name } = object.metadata
  return namespace === undefined ? `${object.kind}/${name}` : `${object.kind}/${namespace}/${name}`
}
