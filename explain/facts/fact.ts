/**
 * The facts about one member, before any check interprets them: plain data, each with its source and time. A file of
 * facts gives the same findings later as the cluster gave when it was written.
 */
import type {
  Cluster,
  Endpoint,
  EndpointSlice,
  Gateway,
  Lease,
  Membership,
  Node,
  RouteAgent,
  ServiceExport,
  ServiceImport,
  ClusterTrafficPolicy,
  TrafficPolicy,
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ProbeItems, ProbeKind } from './probe-shapes.ts'
import type { FactKind, NetworkPolicy, NodeConditions, PartReport, Pod, ServiceFact, Workload } from './shapes.ts'

export const FACTS_FORMAT = 1

/** All facts that were collected at one moment. */
export interface FactSet {
  readonly format: typeof FACTS_FORMAT
  /** RFC 3339. Ages are relative to this time. */
  readonly takenAt: string
  /** What the facts are about: `context "c1" of /home/ana/.kube/config`. */
  readonly target: string
  readonly facts: readonly Fact[]
}

export type Fact = ObjectsFact | ReportFact | ProbeFact | UnansweredFact

interface FactOrigin {
  /** Where the fact comes from: `API server`, `pod sealane-agent-x2x1k`. */
  readonly source: string
  /** RFC 3339 time. */
  readonly at: string
}

/** All objects of one kind: an object that is not among them does not exist. */
export interface ObjectsFact extends FactOrigin {
  readonly t: 'objects'
  readonly kind: FactKind
  readonly items: readonly unknown[]
}

/** What a running part reports about itself. */
export interface ReportFact extends FactOrigin {
  readonly t: 'report'
  readonly report: PartReport
}

/** What a probe found. `probe-shapes.ts` has the shape of each kind's items. */
export interface ProbeFact<K extends ProbeKind = ProbeKind> extends FactOrigin {
  readonly t: 'probe'
  readonly kind: K
  readonly items: readonly ProbeItems[K][]
}

/** A question without an answer. */
export interface UnansweredFact extends FactOrigin {
  readonly t: 'unanswered'
  /** The subject of the question: `Gateway`, `pod sealane-agent-x2x1k`. */
  readonly what: string
  readonly reason: Extract<
    ReasonCode,
    'RightMissing' | 'KindMissing' | 'NotAnswered' | 'NotReadable' | 'NothingRuns' | 'DiskFull' | 'DiskReadOnly'
  >
  readonly message: string
  /** Whether the cluster's health is unknown without the answer. */
  readonly needed: boolean
}

/** The type of a well-formed object of each kind. */
export interface FactObjects extends Readonly<Record<FactKind, unknown>> {
  readonly Membership: Membership
  readonly Cluster: Cluster
  readonly Endpoint: Endpoint
  readonly Gateway: Gateway
  readonly RouteAgent: RouteAgent
  readonly Node: Node & NodeConditions
  readonly ServiceExport: ServiceExport
  readonly ServiceImport: ServiceImport
  /** Slices of imported services, and at a site also those of its own services that have results of a check. */
  readonly EndpointSlice: EndpointSlice
  /** Leases in Sealane's own namespace. */
  readonly Lease: Lease
  readonly Pod: Pod
  readonly Deployment: Workload
  readonly DaemonSet: Workload
  /** Policies in Sealane's own namespace, and in namespaces that export or import services. */
  readonly NetworkPolicy: NetworkPolicy
  /** Exported Services, in namespaces that have a NetworkPolicy. */
  readonly Service: ServiceFact
  readonly TrafficPolicy: Pick<TrafficPolicy, 'metadata' | 'status'>
  readonly ClusterTrafficPolicy: Pick<ClusterTrafficPolicy, 'metadata' | 'status'>
}

// Reduces objects to the fields that checks read, since other fields only make a file of facts larger.

/** A parsed object of any kind. */
export interface AnyObject {
  readonly metadata: object
  readonly [field: string]: unknown
}

/** The fields of the spec that checks read, for kinds whose objects users write. */
const READ_FIELDS: Partial<Readonly<Record<FactKind, readonly string[]>>> = {
  NetworkPolicy: ['podSelector', 'policyTypes', 'ingress', 'egress'],
  Service: ['type', 'selector', 'ipFamilies', 'ports'],
}

/** The object without managedFields. Of a slice, the conditions of its endpoints and the results of its check are kept. */
export function slimmed(kind: FactKind, object: AnyObject): unknown {
  const { managedFields: _fields, ...metadata } = object.metadata as Readonly<Record<string, unknown>>
  const fields = READ_FIELDS[kind]
  if (fields !== undefined) {
    const { name, namespace } = metadata
    const spec = Object.entries(object['spec'] ?? {}).filter(([field]) => fields.includes(field))
    return { metadata: { name, namespace }, spec: Object.fromEntries(spec) }
  }
  if (kind === 'TrafficPolicy' || kind === 'ClusterTrafficPolicy') return { metadata, ...conditionsOf(object) }
  if (kind !== 'EndpointSlice') return { ...object, metadata }
  const endpoints = Array.isArray(object['endpoints']) ? (object['endpoints'] as readonly unknown[]) : []
  const { name, namespace, labels } = metadata
  const { status } = object
  const health = status === undefined ? {} : { status }
  return { metadata: { name, namespace, labels }, endpoints: endpoints.map(readinessOf), ...health }
}

/** The status without its shares, which are many. */
function conditionsOf({ status }: AnyObject): object {
  const { conditions } = (status ?? {}) as { readonly conditions?: unknown }
  return conditions === undefined ? {} : { status: { conditions } }
}

function readinessOf(endpoint: unknown): unknown {
  if (typeof endpoint !== 'object' || endpoint === null) return endpoint
  const { conditions } = endpoint as { readonly conditions?: unknown }
  return conditions === undefined ? {} : { conditions }
}

/**
 * Makes a fact from the `/status` of a part. readFacts() validates the answer. The name, and `part` if it is known,
 * replace those in the answer, so that a compromised part cannot report for another.
 */
export function readReport(
  answer: unknown,
  { name, source, at, part }: { name: string; source: string; at: Date; part?: string | undefined },
): Fact {
  const said = (typeof answer === 'object' && answer !== null ? answer : {}) as PartReport
  const report = { ...said, name, ...(part === undefined ? {} : { part }) }
  return { t: 'report', source, at: at.toISOString(), report }
}
