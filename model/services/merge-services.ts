/**
 * Joins what several clusters export under one namespace and name into one service (KEP-1645 "Constraints and
 * Conflict Resolution"). Pure: every cluster that knows the same exports computes the same result.
 */
import { CARRIED_FAMILIES, type ImportPort, type ServiceExportBody, type ServiceImportSpec } from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'

// Where the exports of one service disagree, in the words of the MCS API (condition Conflict). Pure.

/** In the order of the API's documentation; several are comma-joined in that order. */
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
] as const satisfies readonly ReasonCode[]

type ConflictReason = (typeof CONFLICT_REASONS)[number]

export interface ConflictFinding {
  /** In the order of CONFLICT_REASONS; empty when there is no conflict. */
  readonly reasons: readonly ConflictReason[]
  /** For people: per reason the rule that decided, and who has what. */
  readonly message: string
}

/** Kubernetes' default of sessionAffinityConfig.clientIP.timeoutSeconds. */
const DEFAULT_AFFINITY_SECONDS = 10_800
/** Enough to act on; the rest is counted. A condition's message has a limit of 32768 characters. */
const MAX_CLUSTERS_IN_MESSAGE = 5
const MAX_VALUE_LENGTH = 200

/** One property of an export as text: two exports agree when the texts are equal. */
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
    // An API server writes the default out, a plain file need not.
    show: (body) => body.internalTrafficPolicy ?? 'Cluster',
  },
  {
    reason: 'TrafficDistributionConflict',
    field: 'trafficDistribution',
    show: (body) => body.trafficDistribution ?? 'none',
  },
]

/** Takes all exports of one service, by precedence, at least one. */
function findConflicts(ordered: readonly ClusterExport[]): ConflictFinding {
  const found = new Map<ConflictReason, string>()
  for (const { reason, field, show } of PROPERTIES) note(found, reason, describe(field, ordered, show))
  // With different affinities their settings differ as a matter of course; that is reported once.
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
 * Only a family that is offered and that some cluster lacks leaves part of the endpoints out of reach (KEP-1645
 * "Exporting Services"); a family that a younger export has in addition harms nobody.
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

function showTimeout(body: ServiceExportBody): string {
  return `${body.sessionAffinityTimeoutSeconds ?? DEFAULT_AFFINITY_SECONDS} s`
}

function clip(text: string): string {
  return text.length <= MAX_VALUE_LENGTH ? text : `${text.slice(0, MAX_VALUE_LENGTH)}…`
}

/** A port that a cluster really exposes, as its own slices call it and as the merged service calls it. */
export interface ExposedPort {
  readonly ownName: string
  readonly mergedName: string
  readonly protocol: ImportPort['protocol']
  /** Service port, not target port. */
  readonly port: number
}

export interface MergedService {
  /** Ports in order of precedence; ipFamilies always set. The addresses are allocated elsewhere. */
  readonly spec: Omit<ServiceImportSpec, 'ips'>
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  /** Exporting clusters, sorted. */
  readonly clusters: readonly string[]
  /** The same finding for every exporting cluster (KEP-1645: Conflict is set on all of them). */
  readonly conflicts: ReadonlyMap<string, ConflictFinding>
  /** Per cluster the merged ports that its endpoints may serve; all others must not be sent there. */
  readonly portsOf: ReadonlyMap<string, readonly ExposedPort[]>
}

/** Takes at least one export, at most one per cluster, in any order. Throws RangeError for none. */
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
 * Which of a cluster's own service ports are behind which merged port: those of equal protocol and number, under
 * whatever name. A port that lost its name to another number exposes nothing.
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

/** Union, oldest first: neither a name nor a protocol and number may occur twice (KEP-1645 "Service Port"). */
function mergePorts(ordered: readonly ClusterExport[]): ImportPort[] {
  const names = new Set<string>()
  const numbers = new Set<string>()
  const merged: ImportPort[] = []
  for (const port of ordered.flatMap(({ body }) => body.ports)) {
    const name = port.name ?? ''
    if (names.has(name) || numbers.has(numberKey(port))) continue
    names.add(name)
    numbers.add(numberKey(port))
    merged.push(importPort(port))
  }
  return merged
}

/** The properties that cannot be joined: the oldest export's value counts. */
function mergeSettings(
  ordered: readonly ClusterExport[],
  oldest: ServiceExportBody,
): Omit<ServiceImportSpec, 'ips' | 'ports'> {
  const timeoutSeconds = oldest.sessionAffinity === 'ClientIP' ? oldest.sessionAffinityTimeoutSeconds : undefined
  return {
    type: oldest.type,
    ipFamilies: mergedFamilies(ordered),
    sessionAffinity: oldest.sessionAffinity,
    ...(timeoutSeconds === undefined ? {} : { sessionAffinityConfig: { clientIP: { timeoutSeconds } } }),
    ...(oldest.internalTrafficPolicy === undefined ? {} : { internalTrafficPolicy: oldest.internalTrafficPolicy }),
    ...(oldest.trafficDistribution === undefined ? {} : { trafficDistribution: oldest.trafficDistribution }),
  }
}

/** Only the known fields, and no empty strings: the API wants absent names absent. */
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

// The order in which exports of one service count, and what follows from it alone. Pure.

export type IpFamily = ServiceExportBody['ipFamilies'][number]

export interface ClusterExport {
  readonly cluster: string
  /** Stamped by the broker, milliseconds since 1970: the oldest export wins. */
  readonly createdAtMs: number
  readonly body: ServiceExportBody
  /** Families in which the cluster's pods can be reached; absent while its Cluster record is not known. */
  readonly carried?: readonly IpFamily[] | undefined
}

/**
 * Oldest first (KEP-1645 "Constraints and Conflict Resolution"). The specification names no tie-break; ours is the
 * cluster id, as in Cilium.
 */
function byPrecedence(a: ClusterExport, b: ClusterExport): number {
  if (a.createdAtMs !== b.createdAtMs) return a.createdAtMs - b.createdAtMs
  return a.cluster < b.cluster ? -1 : a.cluster > b.cluster ? 1 : 0
}

/** Those of an export's families in which its endpoints can be reached, each once, in its order. */
function reachableFamilies({ body, carried = CARRIED_FAMILIES }: ClusterExport): readonly IpFamily[] {
  return [...new Set(body.ipFamilies)].filter((family) => CARRIED_FAMILIES.includes(family) && carried.includes(family))
}

/**
 * Families of the merged service (KEP-1645 "Exporting Services"), each once: those of the oldest export that can be
 * reached in any of its own. When none can, those of the oldest export: nobody can use the service.
 */
function mergedFamilies(ordered: readonly ClusterExport[]): readonly IpFamily[] {
  const reachable = ordered.map(reachableFamilies).find((families) => families.length > 0)
  if (reachable !== undefined) return reachable
  const named = ordered.find(({ body }) => body.ipFamilies.length > 0)?.body.ipFamilies ?? ['IPv4']
  return [...new Set(named)]
}
