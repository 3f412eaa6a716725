/** Which clusters answer, by the gateways' probes. Pure. */
import type { Gateway } from '../objects.ts'
import type { ClusterValidation } from '../addresses/remote-clusters.ts'

/**
 * Clusters that some gateway of this cluster has a lane to that is up, plus this cluster itself. Takes the Gateway
 * objects of this cluster. Where no gateway has reported yet, the answer is undefined: nothing is known then, so
 * callers keep everything.
 *
 * Which gateway serves a lane makes no difference here: a node that takes one over is up itself (lane-servers.ts).
 */
export function reachableClusters(self: string, gateways: readonly Gateway[]): ReadonlySet<string> | undefined {
  const reporting = gateways.filter((gateway) => gateway.status !== undefined)
  if (reporting.length === 0) return undefined
  const reachable = new Set<string>([self])
  for (const gateway of reporting) {
    for (const connection of gateway.status?.connections ?? []) {
      if (connection.state === 'up') reachable.add(connection.cluster)
    }
  }
  return reachable
}

/**
 * As reachableClusters(), without those that are refused. While no gateway has reported: all that are not refused, or
 * undefined where none is.
 */
export function usableClusters(
  self: string,
  gateways: readonly Gateway[],
  validation: ClusterValidation | undefined,
): ReadonlySet<string> | undefined {
  const reachable = reachableClusters(self, gateways)
  if (validation === undefined || validation.refused.length === 0) return reachable
  const refused = new Set(validation.refused.map((one) => one.name))
  const all = reachable ?? [self, ...validation.clusters.map((one) => one.id)]
  return new Set([...all].filter((cluster) => !refused.has(cluster)))
}
