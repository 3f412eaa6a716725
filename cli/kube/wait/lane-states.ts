/** Which other clusters are reached, by what the gateways' probes say. Pure. */
import { CONDITION_IN_CONTACT, findCondition } from '../../../model/conditions.ts'
import { isTakenAsSilent } from '../../../model/lanes/heartbeat.ts'
import type { Cluster, ConnectionCause, ConnectionState, Gateway } from '../../../model/objects.ts'

export interface LaneState {
  readonly cluster: string
  /** The best of all lanes to it: one that is up is enough. */
  readonly state: ConnectionState
  readonly message: string
  readonly cause?: ConnectionCause
}

const RANK: Readonly<Record<ConnectionState, number>> = { up: 0, connecting: 1, down: 2 }

export function joinedOthers(clusters: readonly Cluster[], own: string | undefined): readonly string[] {
  return clusters
    .map(({ spec }) => spec.id)
    .filter((id) => id !== own)
    .sort()
}

/** What the agent says of members without a connection to the broker, by id (agent/cluster/plan-cluster-status.ts). */
export function silentClusters(clusters: readonly Cluster[]): ReadonlyMap<string, string> {
  return new Map(
    clusters.flatMap(({ spec, status }): [string, string][] => {
      const contact = findCondition(status?.conditions, CONDITION_IN_CONTACT)
      return contact?.status === 'False' ? [[spec.id, contact.message]] : []
    }),
  )
}

/** A cluster that no gateway speaks of yet is `connecting`. */
export function laneStates(clusters: readonly string[], gateways: readonly Gateway[]): readonly LaneState[] {
  const connections = gateways.flatMap((gateway) =>
    (gateway.status?.connections ?? []).map((one): LaneState =>
      isTakenAsSilent(gateway) ? unheard(one.cluster, gateway.metadata.name) : one,
    ),
  )
  return clusters.map((cluster) => {
    const own = connections.filter((connection) => connection.cluster === cluster)
    const best = [...own].sort((a, b) => RANK[a.state] - RANK[b.state])[0]
    if (best === undefined) return { cluster, state: 'connecting', message: 'not heard of yet' }
    const { state, message, cause } = best
    return { cluster, state, message, ...(cause === undefined ? {} : { cause }) }
  })
}

/** What it said last is no news of its lanes. */
function unheard(cluster: string, node: string): LaneState {
  return { cluster, state: 'connecting', message: `nothing is heard from the gateway on node ${node}` }
}
