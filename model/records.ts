/**
 * What clusters publish to each other through the broker: only facts, as the owner sees them. Pod addresses are the
 * owner's own and untranslated; importers translate them by the owner's Cluster record.
 */
import { type ClusterId, isDnsLabel } from './ids.ts'
import type { Described, TOPOLOGY_FIELDS } from './kinds/kinds.ts'
import type { MemberStatus } from './member-status.ts'
import type {
  ClusterSelector,
  ClusterSpec,
  EndpointPort,
  EndpointSpec,
  ImportPort,
  ServiceImportType,
  LabelSelector,
  SliceEndpoint,
} from './objects.ts'

/** Namespaces with one of these names, or with labels that one of the selectors matches. */
export interface NamespaceChoice {
  readonly names: readonly string[]
  readonly selectors: readonly LabelSelector[]
}

export interface OfferRule {
  /** Sorted, each once. */
  readonly clusters: readonly ClusterId[]
  /** Undefined: all namespaces of these clusters. */
  readonly namespaces?: NamespaceChoice
}

/**
 * To whom a service is offered (model/access). Undefined: to all members. Without a rule: to no other member. The
 * exporter itself is always included.
 */
export type Offer = readonly OfferRule[] | undefined

export interface ServiceExportBody {
  readonly kind: 'ServiceExport'
  /** uid of the ServiceExport object: an export that is deleted and created again is a new one. */
  readonly uid: string
  readonly type: ServiceImportType
  readonly ports: readonly ImportPort[]
  readonly sessionAffinity: 'ClientIP' | 'None'
  /** Seconds, 1 to 86400; only with ClientIP. */
  readonly sessionAffinityTimeoutSeconds?: number
  readonly internalTrafficPolicy?: string
  readonly trafficDistribution?: string
  readonly ipFamilies: readonly ('IPv4' | 'IPv6')[]
  readonly exportedLabels: Readonly<Record<string, string>>
  readonly exportedAnnotations: Readonly<Record<string, string>>
  /** To whom the service is offered; absent: to all members. The broker gives the record to no other member. */
  readonly offeredTo?: NonNullable<Offer>
  /** KEP-5939. Only of a service that is not headless. */
  readonly clusterSelectors?: readonly ClusterSelector[]
  /** Its importers give it nothing new while another cluster is ready. Absent: it is not drained. */
  readonly drained?: boolean
  /** Only with `drained`: importers end open connections too. */
  readonly drainedNow?: boolean
  /** Only with `offeredTo`: TCP connections that are open outlast what it takes away, also where importers decide. */
  readonly keepsOpen?: boolean
  /**
   * The exporter's nodes drop packets of open connections once it offers the service no more, so importers may end
   * them. Absent: they do not, or an earlier release does not say.
   */
  readonly endsOpen?: boolean
}

export interface PublishedEndpoint extends Omit<SliceEndpoint, 'targetRef'> {
  /** The same value for all addresses of one pod of a dual-stack service (model/services/merge-services.ts). */
  readonly pod?: string
}

export interface EndpointSliceBody {
  readonly kind: 'EndpointSlice'
  /** Name of the exported Service in the record's namespace. */
  readonly service: string
  readonly addressType: 'IPv4' | 'IPv6'
  readonly ports: readonly EndpointPort[]
  readonly endpoints: readonly PublishedEndpoint[]
  /** The members that `offeredTo` of the export names, sorted; absent: all. */
  readonly offeredTo?: readonly ClusterId[]
}

export interface EndpointBody {
  readonly kind: 'Endpoint'
  readonly spec: EndpointSpec
}

/** Written by the broker, from the facts of the join and the addresses it has allocated. */
export interface ClusterBody {
  readonly kind: 'Cluster'
  readonly spec: ClusterSpec
}

/** Written by the broker: the address of an exported service, the same in every cluster. The owner cluster is ''. */
export interface ClusterSetIpBody {
  readonly kind: 'ClusterSetIP'
  readonly ips: readonly string[]
}

/**
 * Written by the broker from what the member reports about itself: one record per member; cluster and name are the
 * member's id.
 */
export interface MemberStatusBody extends MemberStatus {
  readonly kind: 'MemberStatus'
}

/** Which clusters link with which (model/lanes/topology.ts). */
export type Topology = Described<typeof TOPOLOGY_FIELDS>

/** Written by the broker as an operator set it: at most one record, of the owner ''. Absent: all clusters link. */
export interface TopologyBody {
  readonly kind: 'Topology'
  /** Counts the changes of the topology. */
  readonly number: number
  readonly topology: Topology
}

export type RecordBody =
  | ServiceExportBody
  | EndpointSliceBody
  | EndpointBody
  | ClusterBody
  | ClusterSetIpBody
  | MemberStatusBody
  | TopologyBody
export type RecordKind = RecordBody['kind']
/** Kinds that a member may publish. */
export type MemberRecordKind = 'ServiceExport' | 'EndpointSlice' | 'Endpoint'

export interface RecordKey {
  /** '' for the broker's own records. */
  readonly cluster: ClusterId | ''
  readonly kind: RecordKind
  /** '' for records without a namespace. */
  readonly namespace: string
  readonly name: string
}

/** What a member publishes. The broker adds the cluster (from the certificate), the revision and the time. */
export interface MemberRecord {
  readonly namespace: string
  readonly name: string
  readonly body: ServiceExportBody | EndpointSliceBody | EndpointBody
}

export interface StoredRecord {
  readonly key: RecordKey
  readonly revision: number
  /** When the broker first saw this record (for a ServiceExport, this uid), in milliseconds since 1970. */
  readonly createdAtMs: number
  readonly body: RecordBody
}

/** One string per key; no part contains '/'. */
export function recordKeyText(key: RecordKey): string {
  return `${key.cluster}/${key.kind}/${key.namespace}/${key.name}`
}

// Which records a member requests from its broker: those of namespaces that exist in its cluster. A service has to be
// imported into every namespace of the same name, so a member requests namespaces: their exports, addresses and
// EndpointSlices. Every member gets the records about clusters and their gateways. Pure.

/** Names of namespaces. */
export type Interest = ReadonlySet<string>

/** Kubernetes supports 10,000 namespaces in a cluster. */
export const MAX_INTEREST = 10_000
/** Limit for all names together, so that they fit into one request. */
const MAX_CHARACTERS = 500_000

const FOLLOWING: ReadonlySet<RecordKind> = new Set(['ServiceExport', 'EndpointSlice', 'ClusterSetIP'])

/** Whether only members that request the namespace get records of this kind. */
export function followsInterest(kind: RecordKind): boolean {
  return FOLLOWING.has(kind)
}

/** If `interest` is undefined, every record is requested. */
export function isOfInterest(
  interest: Interest | undefined,
  { kind, namespace }: Pick<RecordKey, 'kind' | 'namespace'>,
): boolean {
  return interest === undefined || !followsInterest(kind) || interest.has(namespace)
}

/** Returns why an interest is invalid; undefined if it is valid. */
export function interestProblem(interest: Interest): string | undefined {
  if (interest.size > MAX_INTEREST) return `${interest.size} namespaces: expected at most ${MAX_INTEREST}`
  let characters = 0
  for (const name of interest) {
    characters += name.length
    if (!isDnsLabel(name)) return `${JSON.stringify(name.slice(0, 80))}: expected an RFC 1123 label`
  }
  return characters > MAX_CHARACTERS ? `names of ${characters} characters: expected ${MAX_CHARACTERS}` : undefined
}

/** Returns the names in both. */
export function bothOf(one: Interest, other: Interest): Interest {
  return new Set([...one].filter((name) => other.has(name)))
}

/** Returns the names in the first that are not in the second. */
export function lackingIn(one: Interest, other: Interest): Interest {
  return new Set([...one].filter((name) => !other.has(name)))
}
