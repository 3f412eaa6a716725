/**
 * A gateway's status has a time. Readers of the status find by it how much the status still says. Pure;
 * reconcile/failure-detector.ts finds which heartbeats have stopped.
 */
import type { ClusterValidation } from '../addresses/addresses.ts'
import {
  CONDITION_READY,
  type Condition,
  type ConnectionStatus,
  type Gateway,
  REASON_STATUS_STALE,
  findCondition,
} from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'

/** Gateway.status is written at least this often, where SEALANE_HEARTBEAT does not say otherwise. */
export const HEARTBEAT_MS = 5000
/** A heartbeat that is missed so many times, while the reader would have seen it, has stopped. */
export const HEARTBEATS_UNTIL_STALE = 3
/** By the clocks of two machines an age is a hint, no more: what is shown as old is this old at least. */
export const HEARTBEAT_OLD_MS = 30_000
/**
 * What may be chosen instead of HEARTBEAT_MS. With a longer one, a gateway would be shown as old that has not missed
 * any; with a shorter one, a busy node would be late.
 */
export const HEARTBEAT_BOUNDS = { minMs: 1000, maxMs: HEARTBEAT_OLD_MS / HEARTBEATS_UNTIL_STALE } as const

/**
 * fresh: its heartbeat moves, or nothing is known against it.
 * silent: the heartbeat has stopped, and the machine still answers: the process is gone, or cannot write; what the
 *   kernel carries it may go on carrying.
 * gone: the heartbeat has stopped, and the machine does not answer.
 */
export type GatewayLiveness = 'fresh' | 'silent' | 'gone'

/**
 * The gateways as they count, for everything that goes by connections that are up. A connection of a gateway that is
 * gone is down. A connection of one that is silent is down where a fresh gateway has one to the same cluster, and else
 * stays what it was: a process that is replaced, or an image that is pulled, must not cut anybody off. Objects of fresh
 * gateways are given back as they are.
 */
export function heardGateways(
  gateways: readonly Gateway[],
  livenessOf: (name: string) => GatewayLiveness,
): readonly Gateway[] {
  const livenesses = new Map(gateways.map(({ metadata: { name } }) => [name, livenessOf(name)]))
  if ([...livenesses.values()].every((liveness) => liveness === 'fresh')) return gateways
  const servedAfresh = new Set(
    gateways
      .filter(({ metadata }) => livenesses.get(metadata.name) === 'fresh')
      .flatMap(({ status }) => status?.connections ?? [])
      .filter(({ state }) => state === 'up')
      .map(({ cluster }) => cluster),
  )
  return gateways.map((gateway) => {
    const liveness = livenesses.get(gateway.metadata.name)
    const { status } = gateway
    if (liveness === 'fresh' || status === undefined) return gateway
    const isLost = (cluster: string): boolean => liveness === 'gone' || servedAfresh.has(cluster)
    const connections = status.connections.map((one) => (isLost(one.cluster) ? lost(one) : one))
    return { ...gateway, status: { ...status, connections } }
  })
}

/**
 * Milliseconds since a gateway wrote its status, by this machine's clock: for people. Never negative, whatever the
 * clocks say; undefined where the gateway's release does not write it.
 */
export function heartbeatAgeMs({ status }: Gateway, nowMs: number): number | undefined {
  const writtenMs = Date.parse(status?.heartbeatTime ?? '')
  return Number.isNaN(writtenMs) ? undefined : Math.max(0, nowMs - writtenMs)
}

/** A part that watches says that the gateway has stopped to report, and it has not reported since. */
export function isTakenAsSilent({ status }: Gateway): boolean {
  const ready = findCondition(status?.conditions, CONDITION_READY)
  return ready?.status === 'Unknown' && ready.reason === REASON_STATUS_STALE
}

function lost(connection: ConnectionStatus): ConnectionStatus {
  return connection.state === 'up'
    ? { ...connection, state: 'down', message: 'nothing is heard from its gateway' }
    : connection
}

// Which clusters answer, by the gateways' probes. Pure.

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

/** Reasons of a condition Connected that imply that the cluster has, or had, a gateway. */
const HAD_GATEWAY: readonly string[] = [
  'NoLane',
  'LaneProbeTimeout',
  REASON_STATUS_STALE,
] satisfies readonly ReasonCode[]

/** Whether a Cluster's condition Connected implies that the cluster has, or had, a gateway. */
export function hadGateway(connected: Pick<Condition, 'status' | 'reason'> | undefined): boolean {
  return connected?.status === 'True' || HAD_GATEWAY.includes(connected?.reason ?? '')
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
