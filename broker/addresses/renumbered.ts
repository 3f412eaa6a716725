/** Members that a join gives global addresses, and how many connections of theirs that breaks. */
import type { ClusterId } from '../../model/ids.ts'
import type { Renumbered } from '../../protocol/broker-api.ts'
import { clusterSpec } from '../records/cluster-records.ts'
import { statusOf } from '../records/status-records.ts'
import type { LogView } from '../log/record-log.ts'

/** What these members have now; sorted by id. */
export function describeRenumbered(view: LogView, clusters: readonly ClusterId[]): readonly Renumbered[] {
  return clusters
    .map((cluster) => {
      const globalCIDRs = clusterSpec(view, cluster)?.globalCIDRs ?? []
      return { cluster, globalCIDRs, ...reportedConnections(view, cluster) }
    })
    .sort((a, b) => (a.cluster < b.cluster ? -1 : 1))
}

/** As the member reported last; nothing of one that does not report. */
function reportedConnections(view: LogView, cluster: string): Pick<Renumbered, 'openConnections'> {
  const openConnections = statusOf(view, cluster)?.openConnections
  return openConnections === undefined ? {} : { openConnections }
}
