/** The order in which exports of one service count, and what follows from it alone. Pure. */
import type { ServiceExportBody } from './records.ts'

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

/** Families of the merged service: those of the oldest export that names any, each once (KEP-1645 "Exporting Services"). */
export function mergedFamilies(ordered: readonly ClusterExport[]): readonly ('IPv4' | 'IPv6')[] {
  const named = ordered.find(({ body }) => body.ipFamilies.length > 0)
  return named === undefined ? ['IPv4'] : [...new Set(named.body.ipFamilies)]
}
