/** The order in which exports of one service count, and what follows from it alone. Pure. */
import type { ServiceExportBody } from '../records.ts'
import { CARRIED_FAMILIES } from '../spec-constants.ts'

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
export function byPrecedence(a: ClusterExport, b: ClusterExport): number {
  if (a.createdAtMs !== b.createdAtMs) return a.createdAtMs - b.createdAtMs
  return a.cluster < b.cluster ? -1 : a.cluster > b.cluster ? 1 : 0
}

/** Those of an export's families in which its endpoints can be reached, each once, in its order. */
export function reachableFamilies({ body, carried = CARRIED_FAMILIES }: ClusterExport): readonly IpFamily[] {
  return [...new Set(body.ipFamilies)].filter((family) => CARRIED_FAMILIES.includes(family) && carried.includes(family))
}

/**
 * Families of the merged service (KEP-1645 "Exporting Services"), each once: those of the oldest export that can be
 * reached in any of its own. When none can, those of the oldest export: nobody can use the service.
 */
export function mergedFamilies(ordered: readonly ClusterExport[]): readonly IpFamily[] {
  const reachable = ordered.map(reachableFamilies).find((families) => families.length > 0)
  if (reachable !== undefined) return reachable
  const named = ordered.find(({ body }) => body.ipFamilies.length > 0)?.body.ipFamilies ?? ['IPv4']
  return [...new Set(named)]
}
