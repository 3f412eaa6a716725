/** The order in which exports of one service count, and what follows from it alone. Pure. */
import type { ServiceExportBody } from './records.ts'
import { CARRIED_FAMILIES } from './spec-constants.ts'

export interface ClusterExport {
  readonly cluster: string
  /** Stamped by the broker, milliseconds since 1970: the oldest export wins. */
  readonly createdAtMs: number
  readonly body: ServiceExportBody
}

/** Oldest first (KEP-1645 "Constraints and Conflict Resolution"). The specification names no tie-break; ours is the cluster id, as in Cilium. */
export function byPrecedence(a: ClusterExport, b: ClusterExport): number {
  if (a.createdAtMs !== b.createdAtMs) return a.createdAtMs - b.createdAtMs
  return a.cluster < b.cluster ? -1 : a.cluster > b.cluster ? 1 : 0
}

/**
 * Families of the merged service (KEP-1645 "Exporting Services"), each once: of what the clusterset carries, that of
 * the oldest export that has any of it. When no export has, those of the oldest export: nobody can use the service.
 */
export function mergedFamilies(ordered: readonly ClusterExport[]): readonly ('IPv4' | 'IPv6')[] {
  const named = ordered.map(({ body }) => [...new Set(body.ipFamilies)]).filter((families) => families.length > 0)
  const carried = named.map((families) => families.filter((family) => CARRIED_FAMILIES.includes(family)))
  return carried.find((families) => families.length > 0) ?? named[0] ?? ['IPv4']
}
