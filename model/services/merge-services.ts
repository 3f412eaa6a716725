/**
 * Joins what several clusters export under one namespace and name into one service (KEP-1645 "Constraints and
 * Conflict Resolution"). Pure: every cluster that knows the same exports computes the same result.
 */
import { type ClusterExport, byPrecedence, mergedFamilies } from './export-precedence.ts'
import type { ImportPort, ServiceImportSpec } from '../objects.ts'
import type { ServiceExportBody } from '../records.ts'
import { type ConflictFinding, findConflicts } from './service-conflicts.ts'

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
