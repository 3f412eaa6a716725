/** Members that a join gives global addresses, and how many connections of theirs that breaks. */
import type { ClusterId } from '../../model/ids.ts'
import type { Renumbered } from '../../protocol/broker-api.ts'
import { clusterSpec } from '../records/cluster-records.ts'
import { statusOf } from '../records/status-records.ts'
import type { LogView } from '../log/record-log.ts'
import { isLive } from '../state/state.ts'

/** Of each live member, by id. */
export function globalAddresses(view: LogView): ReadonlyMap<string, readonly string[]> {
  const live = view.list('member').filter(({ value }) => isLive(value))
  return new Map(live.map(({ key }) => [key, clusterSpec(view, key)?.globalCIDRs ?? []]))
}

/** Who had none before and has some now, beside the one that joined; sorted by id. */
export function renumberedSince(
  before: ReadonlyMap<string, readonly string[]>,
  view: LogView,
  joined: ClusterId,
): readonly Renumbered[] {
  return [...globalAddresses(view)]
    .filter(([id, now]) => id !== joined && now.length > 0 && before.get(id)?.length === 0)
    .map(([cluster, globalCIDRs]) => ({ cluster, globalCIDRs, ...reportedConnections(view, cluster) }))
    .sort((a, b) => (a.cluster < b.cluster ? -1 : 1))
}

/** As the member reported last; nothing of one that does not report. */
function reportedConnections(view: LogView, cluster: string): Pick<Renumbered, 'openConnections'> {
  const openConnections = statusOf(view, cluster)?.openConnections
  return openConnections === undefined ? {} : { openConnections }
}
