/** Which clusters answer, judged by the gateways' probes. Pure. */
import type { Gateway } from './objects.ts'

/**
 * Clusters that some gateway of this cluster has a lane to that is up, plus this cluster itself.
 * Takes the Gateway objects of this cluster. Where no gateway has reported yet, the answer is undefined:
 * unseen is not gone, so callers keep everything.
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
