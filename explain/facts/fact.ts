/**
 * What was found out about one member, before anybody says what it means: plain data, each with who said it and when.
 * A file of facts says the same a week later as the cluster did.
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
} from '../../model/model.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ProbeItems, ProbeKind } from './probe-shapes.ts'
import type { FactKind, NetworkPolicy, NodeConditions, PartReport, Pod, ServiceFact, Workload } from './shapes.ts'

export const FACTS_FORMAT = 1

/** Everything that was found out at one moment. */
export interface FactSet {
  readonly format: typeof FACTS_FORMAT
  /** RFC 3339. Ages are counted up to then. */
  readonly takenAt: string
  /** What was looked at: `context "c1" of /home/ana/.kube/config`. */
  readonly target: string
  readonly facts: readonly Fact[]
}

export type Fact = ObjectsFact | ReportFact | ProbeFact | UnansweredFact

interface FactOrigin {
  /** Who said it: `API server`, `pod sealane-agent-x2x1k`. */
  readonly source: string
  /** RFC 3339. */
  readonly at: string
}

/** All objects of one kind that there are: who is not among them does not exist. */
export interface ObjectsFact extends FactOrigin {
  readonly t: 'objects'
  readonly kind: FactKind
  readonly items: readonly unknown[]
}

/** What a running part says of itself. */
export interface ReportFact extends FactOrigin {
  readonly t: 'report'
  readonly report: PartReport
}

/** What was found by looking closer: each item as `probe-shapes.ts` has its kind. */
export interface ProbeFact<K extends ProbeKind = ProbeKind> extends FactOrigin {
  readonly t: 'probe'
  readonly kind: K
  readonly items: readonly ProbeItems[K][]
}

/** A question that nobody answered. */
export interface UnansweredFact extends FactOrigin {
  readonly t: 'unanswered'
  /** What was asked for: `Gateway`, `pod sealane-agent-x2x1k`. */
  readonly what: string
  readonly reason: Extract<
    ReasonCode,
    'RightMissing' | 'KindMissing' | 'NotAnswered' | 'NotReadable' | 'NothingRuns' | 'DiskFull' | 'DiskReadOnly'
  >
  readonly message: string
  /** Without it nobody can say that the cluster is well. */
  readonly needed: boolean
}

/** What is known of an object that is as it has to be. */
export interface FactObjects extends Readonly<Record<FactKind, unknown>> {
  readonly Membership: Membership
  readonly Cluster: Cluster
  readonly Endpoint: Endpoint
  readonly Gateway: Gateway
  readonly RouteAgent: RouteAgent
  readonly Node: Node & NodeConditions
  readonly ServiceExport: ServiceExport
  readonly ServiceImport: ServiceImport
  /** Of imported services alone. */
  readonly EndpointSlice: EndpointSlice
  /** In Sealane's own namespace. */
  readonly Lease: Lease
  readonly Pod: Pod
  readonly Deployment: Workload
  readonly DaemonSet: Workload
  /** In Sealane's own namespace, and in those that export or import something. */
  readonly NetworkPolicy: NetworkPolicy
  /** Exported, in namespaces that have a NetworkPolicy. */
  readonly Service: ServiceFact
}

// What is kept of an answer: what nobody looks at makes a file of facts large, and no better.

/** As JSON has an object of any kind. */
export interface AnyObject {
  readonly metadata: object
  readonly [field: string]: unknown
}

/** Of these kinds, which others write, the fields of the spec that a check reads. */
const READ_FIELDS: Partial<Readonly<Record<FactKind, readonly string[]>>> = {
  NetworkPolicy: ['podSelector', 'policyTypes', 'ingress', 'egress'],
  Service: ['type', 'selector', 'ipFamilies', 'ports'],
}

/** Without who wrote which field; of endpoints no more than whether they are ready. */
export function slimmed(kind: FactKind, object: AnyObject): unknown {
  const { managedFields: _fields, ...metadata } = object.metadata as Readonly<Record<string, unknown>>
  const fields = READ_FIELDS[kind]
  if (fields !== undefined) {
    const { name, namespace } = metadata
    const spec = Object.entries(object['spec'] ?? {}).filter(([field]) => fields.includes(field))
    return { metadata: { name, namespace }, spec: Object.fromEntries(spec) }
  }
  if (kind !== 'EndpointSlice') return { ...object, metadata }
  const endpoints = Array.isArray(object['endpoints']) ? (object['endpoints'] as readonly unknown[]) : []
  const { name, namespace, labels } = metadata
  return { metadata: { name, namespace, labels }, endpoints: endpoints.map(readinessOf) }
}

function readinessOf(endpoint: unknown): unknown {
  if (typeof endpoint !== 'object' || endpoint === null) return endpoint
  const { conditions } = endpoint as { readonly conditions?: unknown }
  return conditions === undefined ? {} : { conditions }
}

/**
 * `/status` of a part. Whatever it is, it is checked where facts are read; its name is ours, and so is `part` where it
 * is known otherwise: one that was broken into does not speak for another.
 */
export function readReport(
  answer: unknown,
  { name, source, at, part }: { name: string; source: string; at: Date; part?: string | undefined },
): Fact {
  const said = (typeof answer === 'object' && answer !== null ? answer : {}) as PartReport
  const report = { ...said, name, ...(part === undefined ? {} : { part }) }
  return { t: 'report', source, at: at.toISOString(), report }
}
