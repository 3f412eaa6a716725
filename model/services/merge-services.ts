/**
 * Merges what several clusters export under one namespace and name into one service (KEP-1645 "Constraints and Conflict
 * Resolution"). Pure: every cluster with the same exports computes the same result.
 */
import {
  CARRIED_FAMILIES,
  type EndpointSlice,
  type ImportPort,
  type ServiceExportBody,
  type ServiceImportSpec,
  type SliceEndpoint,
  nameHash,
} from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'
import { MAX_MERGED_PORT_BYTES, MAX_SERVICE_PORTS } from '../values/values.ts'

// Where the exports of one service disagree, in the terms of the MCS API (condition Conflict). Pure.

/** In the order of the API's documentation; several are joined with commas in that order. */
const CONFLICT_REASONS = [
  'PortConflict',
  'TypeConflict',
  'SessionAffinityConflict',
  'SessionAffinityConfigConflict',
  'AnnotationsConflict',
  'LabelsConflict',
  'InternalTrafficPolicyConflict',
  'TrafficDistributionConflict',
  'IPFamilyConflict',
  'ClusterSelectorsConflict',
] as const satisfies readonly ReasonCode[]

type ConflictReason = (typeof CONFLICT_REASONS)[number]

export interface ConflictFinding {
  /** In the order of CONFLICT_REASONS; empty when there is no conflict. */
  readonly reasons: readonly ConflictReason[]
  /** For each reason, the rule that decided, and the value of each cluster. */
  readonly message: string
}

/** The Kubernetes default of sessionAffinityConfig.clientIP.timeoutSeconds. */
const DEFAULT_AFFINITY_SECONDS = 10_800
/** Enough to act on; the rest is only counted. A condition's message is limited to 32768 characters. */
const MAX_CLUSTERS_IN_MESSAGE = 5
const MAX_VALUE_LENGTH = 200

/** Formats one property of an export: two exports agree if the texts are equal. */
type Show = (body: ServiceExportBody) => string

const PROPERTIES: readonly { readonly reason: ConflictReason; readonly field: string; readonly show: Show }[] = [
  { reason: 'PortConflict', field: 'ports', show: (body) => body.ports.map(showPort).sort().join(', ') || 'none' },
  { reason: 'TypeConflict', field: 'type', show: (body) => body.type },
  { reason: 'SessionAffinityConflict', field: 'sessionAffinity', show: (body) => body.sessionAffinity },
  { reason: 'AnnotationsConflict', field: 'exportedAnnotations', show: (body) => showMap(body.exportedAnnotations) },
  { reason: 'LabelsConflict', field: 'exportedLabels', show: (body) => showMap(body.exportedLabels) },
  {
    reason: 'InternalTrafficPolicyConflict',
    field: 'internalTrafficPolicy',
    // An API server writes the default; a plain file may omit it.
    show: (body) => body.internalTrafficPolicy ?? 'Cluster',
  },
  {
    reason: 'TrafficDistributionConflict',
    field: 'trafficDistribution',
    show: (body) => body.trafficDistribution ?? 'none',
  },
  // The whole list with its order counts (KEP-5939).
  { reason: 'ClusterSelectorsConflict', field: 'clusterSelectors', show: showSelectors },
]

/** Takes all exports of one service, at least one, in order of precedence. */
function findConflicts(ordered: readonly ClusterExport[]): ConflictFinding {
  const found = new Map<ConflictReason, string>()
  for (const { reason, field, show } of PROPERTIES) note(found, reason, describe(field, ordered, show))
  // If the affinities differ, so do their settings; only the affinity is reported then.
  const sticky = ordered.filter(({ body }) => body.sessionAffinity === 'ClientIP')
  note(found, 'SessionAffinityConfigConflict', describe('sessionAffinityConfig timeout', sticky, showTimeout))
  note(found, 'IPFamilyConflict', describeFamilies(ordered))
  const reasons = CONFLICT_REASONS.filter((reason) => found.has(reason))
  const message = reasons.map((reason) => found.get(reason) ?? '').join('. ')
  return { reasons, message }
}

function note(found: Map<ConflictReason, string>, reason: ConflictReason, text: string | undefined): void {
  if (text !== undefined) found.set(reason, text)
}

function describe(field: string, ordered: readonly ClusterExport[], show: Show): string | undefined {
  const oldest = ordered[0]
  if (oldest === undefined) return undefined
  const used = show(oldest.body)
  const others = ordered.filter(({ body }) => show(body) !== used)
  if (others.length === 0) return undefined
  const rule =
    field === 'ports' ? 'all ports are offered, the oldest export wins where they clash' : 'the oldest export wins'
  return `${field}: ${rule}; ${oldest.cluster} has ${clip(used)}; ${reportOthers(others, ({ body }) => show(body))}`
}

/**
 * Endpoints are unreachable only if some cluster lacks a family that is offered (KEP-1645 "Exporting Services"). An
 * additional family of a younger export does no harm.
 */
function describeFamilies(ordered: readonly ClusterExport[]): string | undefined {
  const offered = mergedFamilies(ordered)
  const anyReachable = ordered.some((one) => reachableFamilies(one).length > 0)
  const has = (one: ClusterExport): readonly string[] => (anyReachable ? reachableFamilies(one) : one.body.ipFamilies)
  const lacking = ordered.filter(
    (one) => one.body.ipFamilies.length > 0 && !offered.every((family) => has(one).includes(family)),
  )
  if (lacking.length === 0) return undefined
  return `ipFamilies: ${offered.join(' and ')} offered; ${reportOthers(lacking, showFamilies)}`
}

function showFamilies(one: ClusterExport): string {
  const reachable = reachableFamilies(one)
  if (reachable.length > 0) return `${reachable.join(' and ')} only`
  return `${one.body.ipFamilies.join(' and ')}, which its cluster is not reached by`
}

function reportOthers(others: readonly ClusterExport[], show: (one: ClusterExport) => string): string {
  const reported = others.slice(0, MAX_CLUSTERS_IN_MESSAGE).map((one) => `${one.cluster} has ${clip(show(one))}`)
  const more = others.length - reported.length
  return reported.join('; ') + (more > 0 ? `; and ${more} more` : '')
}

function showPort(port: ImportPort): string {
  const name = port.name === undefined || port.name === '' ? 'unnamed' : port.name
  const app = port.appProtocol === undefined || port.appProtocol === '' ? '' : ` (${port.appProtocol})`
  return `${name} ${port.port}/${port.protocol}${app}`
}

function showMap(map: Readonly<Record<string, string>>): string {
  const entries = Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1))
  return entries.length === 0 ? 'none' : JSON.stringify(Object.fromEntries(entries))
}

function showSelectors({ clusterSelectors = [] }: ServiceExportBody): string {
  return clusterSelectors.length === 0 ? 'none' : JSON.stringify(clusterSelectors, sortedKeys)
}

/** For JSON.stringify: the order in which the keys of a map were written means nothing. */
function sortedKeys(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)))
}

function showTimeout(body: ServiceExportBody): string {
  return `${body.sessionAffinityTimeoutSeconds ?? DEFAULT_AFFINITY_SECONDS} s`
}

function clip(text: string): string {
  return text.length <= MAX_VALUE_LENGTH ? text : `${text.slice(0, MAX_VALUE_LENGTH)}…`
}

/** A port that a cluster exposes, with its name in the cluster's own slices and in the merged service. */
export interface ExposedPort {
  readonly ownName: string
  readonly mergedName: string
  readonly protocol: ImportPort['protocol']
  /** Service port, not target port. */
  readonly port: number
}

export interface MergedService {
  /** Ports in order of precedence; ipFamilies is always set. The addresses are allocated elsewhere. */
  readonly spec: Omit<ServiceImportSpec, 'ips'>
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  /** Exporting clusters, sorted. */
  readonly clusters: readonly string[]
  /** The same finding for every exporting cluster (KEP-1645: Conflict is set on all of them). */
  readonly conflicts: ReadonlyMap<string, ConflictFinding>
  /** The merged ports that each cluster's endpoints may serve; traffic for other ports must not be sent there. */
  readonly portsOf: ReadonlyMap<string, readonly ExposedPort[]>
}

/** Takes at least one export, at most one per cluster, in any order. Throws RangeError if there is none. */
export function mergeServices(exports: readonly ClusterExport[]): MergedService {
  const ordered = [...exports].sort(byPrecedence)
  const oldest = ordered[0]
  if (oldest === undefined) throw new RangeError('mergeServices: expected at least one export')
  const ports = mergePorts(ordered)
  const finding = findConflicts(ordered)
  const clusters = ordered.map(({ cluster }) => cluster).sort()
  return {
    spec: { ports, ...mergeSettings(ordered, oldest.body) },
    labels: oldest.body.exportedLabels,
    annotations: oldest.body.exportedAnnotations,
    clusters,
    conflicts: new Map(clusters.map((cluster) => [cluster, finding])),
    portsOf: new Map(ordered.map(({ cluster, body }) => [cluster, exposedPorts(ports, body.ports)])),
  }
}

/**
 * Maps a cluster's own service ports to merged ports: those with the same protocol and number, under any name. A port
 * whose name was taken by another number exposes nothing.
 */
export function exposedPorts(merged: readonly ImportPort[], own: readonly ImportPort[]): ExposedPort[] {
  const byNumber = new Map(merged.map((port) => [numberKey(port), port]))
  const exposed = new Map<string, ExposedPort>()
  for (const port of own) {
    const target = byNumber.get(numberKey(port))
    if (target === undefined || exposed.has(numberKey(port))) continue
    const mergedName = target.name ?? ''
    exposed.set(numberKey(port), { ownName: port.name ?? '', mergedName, protocol: port.protocol, port: port.port })
  }
  return [...exposed.values()]
}

/**
 * The union, oldest first: neither a name nor a protocol and number may occur twice (KEP-1645 "Service Port"). Ports of
 * younger exports are left out where the ServiceImport would become larger than an API server takes.
 */
function mergePorts(ordered: readonly ClusterExport[]): ImportPort[] {
  const names = new Set<string>()
  const numbers = new Set<string>()
  const merged: ImportPort[] = []
  let bytes = 0
  for (const port of ordered.flatMap(({ body }) => body.ports)) {
    const name = port.name ?? ''
    if (names.has(name) || numbers.has(numberKey(port))) continue
    bytes += JSON.stringify(importPort(port)).length + 1
    if (merged.length >= MAX_SERVICE_PORTS || bytes > MAX_MERGED_PORT_BYTES) break
    names.add(name)
    numbers.add(numberKey(port))
    merged.push(importPort(port))
  }
  return merged
}

/** Properties that cannot be merged: the oldest export's value applies. */
function mergeSettings(
  ordered: readonly ClusterExport[],
  oldest: ServiceExportBody,
): Omit<ServiceImportSpec, 'ips' | 'ports'> {
  const timeoutSeconds = oldest.sessionAffinity === 'ClientIP' ? oldest.sessionAffinityTimeoutSeconds : undefined
  const selectors = oldest.type === 'Headless' ? [] : (oldest.clusterSelectors ?? [])
  return {
    ...(selectors.length === 0 ? {} : { clusterSelectors: selectors }),
    type: oldest.type,
    ipFamilies: mergedFamilies(ordered),
    sessionAffinity: oldest.sessionAffinity,
    ...(timeoutSeconds === undefined ? {} : { sessionAffinityConfig: { clientIP: { timeoutSeconds } } }),
    ...(oldest.internalTrafficPolicy === undefined ? {} : { internalTrafficPolicy: oldest.internalTrafficPolicy }),
    ...(oldest.trafficDistribution === undefined ? {} : { trafficDistribution: oldest.trafficDistribution }),
  }
}

/** Keeps only the known fields, and no empty strings: the API requires absent names to be absent. */
function importPort({ name, protocol, port, appProtocol }: ImportPort): ImportPort {
  return {
    ...(name === undefined || name === '' ? {} : { name }),
    protocol,
    port,
    ...(appProtocol === undefined || appProtocol === '' ? {} : { appProtocol }),
  }
}

function numberKey(port: ImportPort): string {
  return `${port.protocol}/${port.port}`
}

// The precedence of the exports of one service, and what follows from it alone. Pure.

export type IpFamily = ServiceExportBody['ipFamilies'][number]

export interface ClusterExport {
  readonly cluster: string
  /** Set by the broker, milliseconds since 1970: the oldest export wins. */
  readonly createdAtMs: number
  readonly body: ServiceExportBody
  /** Families in which the cluster's pods are reachable; absent while its Cluster record is not known. */
  readonly carried?: readonly IpFamily[] | undefined
}

/**
 * Oldest first (KEP-1645 "Constraints and Conflict Resolution"). The specification defines no tie-break; ours is the
 * cluster id, as in Cilium.
 */
function byPrecedence(a: ClusterExport, b: ClusterExport): number {
  if (a.createdAtMs !== b.createdAtMs) return a.createdAtMs - b.createdAtMs
  return a.cluster < b.cluster ? -1 : a.cluster > b.cluster ? 1 : 0
}

/** Returns the families of an export in which its endpoints are reachable, each once, in its order. */
function reachableFamilies({ body, carried = CARRIED_FAMILIES }: ClusterExport): readonly IpFamily[] {
  return [...new Set(body.ipFamilies)].filter((family) => CARRIED_FAMILIES.includes(family) && carried.includes(family))
}

/**
 * Returns the families of the merged service (KEP-1645 "Exporting Services"), each once: those of the oldest export
 * that is reachable in any of its own. If there is none, those of the oldest export: no client can use the service.
 */
function mergedFamilies(ordered: readonly ClusterExport[]): readonly IpFamily[] {
  const reachable = ordered.map(reachableFamilies).find((families) => families.length > 0)
  if (reachable !== undefined) return reachable
  const named = ordered.find(({ body }) => body.ipFamilies.length > 0)?.body.ipFamilies ?? ['IPv4']
  return [...new Set(named)]
}

// Which endpoints of a service are the same pod. An EndpointSlice has one family, so a dual-stack pod is in two slices, with
// unrelated addresses.

/**
 * On imported slices: the keys of its endpoints in their order, separated by commas; empty for an endpoint without a
 * key.
 */
export const ANNOTATION_PODS = 'sealane.io/pods'

const POD_KEY = /^[0-9a-f]{1,16}$/
/**
 * With 5,000 pods in a service, two have the same key in one of 300 services. They are then included or left out
 * together in truncated answers.
 */
const POD_KEY_LENGTH = 8

export function isPodKey(text: string): boolean {
  return POD_KEY.test(text)
}

/** Undefined if the endpoint is not a pod. */
export function podKey({ targetRef }: Pick<SliceEndpoint, 'targetRef'>): string | undefined {
  const { kind, uid, name } = targetRef ?? {}
  const identity = uid ?? name
  return kind === 'Pod' && identity !== undefined ? nameHash(identity).slice(0, POD_KEY_LENGTH) : undefined
}

/** Returns the annotation's value for the keys of the endpoints in their order; undefined if none has a usable key. */
export function podsText(keys: readonly (string | undefined)[]): string | undefined {
  const usable = keys.map((key) => (key !== undefined && isPodKey(key) ? key : ''))
  return usable.some((key) => key !== '') ? usable.join() : undefined
}

/** Returns the keys of a slice's endpoints in their order; empty if the annotation does not match them. */
export function podsOf({ metadata, endpoints = [] }: EndpointSlice): readonly (string | undefined)[] {
  const keys = metadata.annotations?.[ANNOTATION_PODS]?.split(',') ?? []
  return keys.length === endpoints.length ? keys.map((key) => (isPodKey(key) ? key : undefined)) : []
}
