/**
 * Reduces objects to the fields of model/objects.ts before they are cached. The types make the tables complete: a field
 * that is added to the model but not here does not compile.
 */
import {
  OWNED_BY_NODES,
  type Kind,
  type KubeObject,
  type ObjectKinds,
  type ObjectMeta,
  type SliceEndpoint,
} from '../model.ts'

/** An object as the server sends it. */
export interface RawObject {
  readonly apiVersion?: string
  readonly kind?: string
  readonly metadata: ObjectMeta & {
    readonly managedFields?: readonly object[]
    readonly finalizers?: readonly string[]
  }
  readonly [field: string]: unknown
}

type Fields<T> = { readonly [F in keyof Required<T>]: true }
type Spec<K extends Kind> = ObjectKinds[K] extends { readonly spec?: infer S } ? NonNullable<S> : never
type StatusOf<K extends Kind> = ObjectKinds[K] extends { readonly status?: infer S } ? NonNullable<S> : never

const NODE_SPEC: Fields<Spec<'Node'>> = {
  podCIDR: true,
  podCIDRs: true,
  providerID: true,
  unschedulable: true,
  taints: true,
}
const NODE_STATUS: Fields<StatusOf<'Node'>> = { addresses: true, nodeInfo: true }
const NODE_INFO: Fields<NonNullable<StatusOf<'Node'>['nodeInfo']>> = {
  architecture: true,
  kubeletVersion: true,
  operatingSystem: true,
  osImage: true,
}
const POD_SPEC: Fields<Spec<'Pod'>> = { nodeName: true, hostname: true, hostNetwork: true }
const POD_STATUS: Fields<StatusOf<'Pod'>> = { phase: true, podIP: true, podIPs: true }
const NAMESPACE_STATUS: Fields<StatusOf<'Namespace'>> = { phase: true }
const SERVICE_SPEC: Fields<Spec<'Service'>> = {
  type: true,
  clusterIP: true,
  clusterIPs: true,
  ipFamilies: true,
  ipFamilyPolicy: true,
  selector: true,
  externalIPs: true,
  ports: true,
  sessionAffinity: true,
  sessionAffinityConfig: true,
  internalTrafficPolicy: true,
  trafficDistribution: true,
}
const ENDPOINT: Fields<SliceEndpoint> = {
  addresses: true,
  hostname: true,
  nodeName: true,
  zone: true,
  hints: true,
  conditions: true,
  targetRef: true,
}
const TARGET: Fields<NonNullable<SliceEndpoint['targetRef']>> = { kind: true, name: true, uid: true }
const HINTS: Fields<NonNullable<SliceEndpoint['hints']>> = { forZones: true }

/** The annotation with kubectl's copy of the whole object. */
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration'

type Slim = (raw: RawObject) => Record<string, unknown>

const whole: Slim = ({ spec, status }) => given({ spec, status })

const SLIM: Readonly<Record<Kind, Slim>> = {
  Namespace: ({ status }) => given({ status: pick(status, NAMESPACE_STATUS) }),
  Node: ({ spec, status }) => given({ spec: pick(spec, NODE_SPEC), status: slimNodeStatus(status) }),
  Pod: ({ spec, status }) => given({ spec: pick(spec, POD_SPEC), status: pick(status, POD_STATUS) }),
  Service: ({ spec }) => given({ spec: pick(spec, SERVICE_SPEC) }),
  EndpointSlice: ({ addressType, endpoints, ports }) =>
    given({ addressType, endpoints: slimEndpoints(endpoints), ports }),
  ServiceExport: whole,
  ServiceImport: whole,
  Cluster: whole,
  Endpoint: whole,
  Gateway: whole,
  RouteAgent: whole,
  Membership: whole,
  ClusterProperty: whole,
  Lease: whole,
  AccessPolicy: whole,
  ClusterAccessPolicy: whole,
  TrafficPolicy: whole,
  ClusterTrafficPolicy: whole,
  Topology: whole,
}

/**
 * Returns a new object that shares the kept fields with `raw`. List items have no kind and apiVersion; they are added.
 */
export function slimObject(kind: Kind, apiVersion: string, raw: RawObject): KubeObject {
  return { apiVersion, kind, metadata: slimMetadata(kind, raw.metadata), ...SLIM[kind](raw) } as unknown as KubeObject
}

/** Makes an object that slimObject() has given smaller still. */
export type Slimmer = (object: KubeObject) => KubeObject

/**
 * A Gateway without the candidates of its connections, up to MAX_LINK_CANDIDATES. Only the gateway itself, and commands
 * that explain a link, read them. Other kinds stay.
 */
export function withoutLinkCandidates(object: KubeObject): KubeObject {
  if (object.kind !== 'Gateway' || object.status === undefined) return object
  // A status that only has a condition of another program has no connections yet.
  const { connections } = object.status as Partial<typeof object.status>
  if (connections === undefined) return object
  const kept = connections.map(({ candidates: _unread, ...rest }) => rest)
  return { ...object, status: { ...object.status, connections: kept } }
}

/** resourceVersion is left out: it changes with every status update, and no reader here needs it. */
function slimMetadata(kind: Kind, metadata: ObjectMeta): ObjectMeta {
  const { name, namespace, uid, generation, creationTimestamp, deletionTimestamp, labels, annotations } = metadata
  const kept = kind === 'Pod' ? undefined : withoutLastApplied(annotations)
  return given({
    name,
    namespace,
    uid,
    generation,
    creationTimestamp,
    deletionTimestamp,
    labels,
    annotations: kept,
    ownerReferences: hasOwners(kind) ? metadata.ownerReferences : undefined,
  }) as unknown as ObjectMeta
}

/** Whether readers look at the owners: those of nodes, and those of derived Services. */
function hasOwners(kind: Kind): boolean {
  return OWNED_BY_NODES.has(kind) || kind === 'Service'
}

function withoutLastApplied(annotations: ObjectMeta['annotations']): ObjectMeta['annotations'] {
  if (annotations?.[LAST_APPLIED] === undefined) return annotations
  const { [LAST_APPLIED]: _copy, ...rest } = annotations
  return rest
}

/** The rest of nodeInfo, such as boot ids and kernel versions, has no reader. */
function slimNodeStatus(status: unknown): unknown {
  const kept = pick(status, NODE_STATUS)
  if (kept?.['nodeInfo'] === undefined) return kept
  return given({ ...kept, nodeInfo: pick(kept['nodeInfo'], NODE_INFO) })
}

function slimEndpoints(endpoints: unknown): unknown {
  return Array.isArray(endpoints) ? endpoints.map(slimEndpoint) : []
}

/**
 * Hints for nodes are dropped: node names have no meaning in other clusters, and a slice's `nodeName` says the same.
 */
function slimEndpoint(endpoint: unknown): unknown {
  const kept = pick(endpoint, ENDPOINT)
  if (kept?.['hints'] === undefined && kept?.['targetRef'] === undefined) return kept
  return given({ ...kept, hints: pick(kept['hints'], HINTS), targetRef: pick(kept['targetRef'], TARGET) })
}

function pick(value: unknown, fields: Readonly<Record<string, true>>): Record<string, unknown> | undefined {
  if (typeof value !== 'object' || value === null) return undefined
  return Object.fromEntries(Object.entries(value).filter(([name]) => fields[name]))
}

/** Returns the fields that are neither undefined nor null. */
function given(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null))
}
