/**
 * Decides from the heartbeat in a gateway's status how far the status is still valid. Pure;
 * reconcile/failure-detector.ts detects heartbeats that have stopped.
 */
import type { ClusterValidation } from '../addresses/addresses.ts'
import {
  CONDITION_READY,
  type Condition,
  type ConnectionCause,
  type ConnectionStatus,
  type Gateway,
  REASON_STATUS_STALE,
  findCondition,
} from '../model.ts'
import type { ReasonCode } from '../reasons/reasons.ts'

/** The longest interval between writes of Gateway.status, unless SEALANE_HEARTBEAT sets another. */
export const HEARTBEAT_MS = 5000
/** A heartbeat has stopped when it is missed this many times while the reader was able to see it. */
export const HEARTBEATS_UNTIL_STALE = 3
/** The clocks of two machines may differ, so an age is only a hint: a status is shown as old from this age on. */
export const HEARTBEAT_OLD_MS = 30_000
/**
 * Valid values instead of HEARTBEAT_MS. With a longer one, a gateway would be shown as old although it has missed none;
 * with a shorter one, a busy node would be late.
 */
export const HEARTBEAT_BOUNDS = { minMs: 1000, maxMs: HEARTBEAT_OLD_MS / HEARTBEATS_UNTIL_STALE } as const

/**
 * - fresh: its heartbeat changes, or there is no evidence against it.
 * - silent: the heartbeat has stopped, but the machine still answers. The process is gone or cannot write; the kernel
 *   may still carry its traffic.
 * - gone: the heartbeat has stopped, and the machine does not answer.
 */
export type GatewayLiveness = 'fresh' | 'silent' | 'gone'

/**
 * Returns the gateways as they count for everything that depends on connections that are up. A connection of a gateway
 * that is gone is down. A connection of a silent gateway is down if a fresh gateway has one to the same cluster;
 * otherwise it keeps its state, so that a process restart or an image pull disconnects no cluster. It is no longer
 * unanswered then, because nothing would end that. Objects of fresh gateways are returned unchanged.
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
    const connections = status.connections.map((one) => (isLost(one.cluster) ? lost(one) : answered(one)))
    return { ...gateway, status: { ...status, connections } }
  })
}

/**
 * Returns the milliseconds since a gateway wrote its status, by this machine's clock, for display. Never negative,
 * whatever the clocks say; undefined if the gateway's release does not write the time.
 */
export function heartbeatAgeMs({ status }: Gateway, nowMs: number): number | undefined {
  const writtenMs = Date.parse(status?.heartbeatTime ?? '')
  return Number.isNaN(writtenMs) ? undefined : Math.max(0, nowMs - writtenMs)
}

/** Whether a watching component has reported that the gateway stopped reporting, and it has not reported since. */
export function isTakenAsSilent({ status }: Gateway): boolean {
  const ready = findCondition(status?.conditions, CONDITION_READY)
  return ready?.status === 'Unknown' && ready.reason === REASON_STATUS_STALE
}

function lost(connection: ConnectionStatus): ConnectionStatus {
  return connection.state === 'up'
    ? { ...connection, state: 'down', message: 'its gateway does not report' }
    : connection
}

function answered(connection: ConnectionStatus): ConnectionStatus {
  const { cause, ...rest } = connection
  return cause === CAUSE_UNANSWERED ? rest : connection
}

// Which clusters answer, according to the gateways' probes. Pure.

/**
 * Returns the clusters to which at least one gateway of this cluster has a lane that is up, plus this cluster itself.
 * Takes the Gateway objects of this cluster. Undefined if no gateway has reported yet: nothing is known then, so
 * callers keep everything.
 *
 * It does not matter which gateway serves a lane: a node that takes one over is up itself
 * (model/lanes/lane-servers.ts).
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

/** Of a connection that is up: traffic policies send new calls to other clusters, where they may. */
export const CAUSE_UNANSWERED = 'ProbesUnanswered' satisfies ConnectionCause

/**
 * Returns the clusters that are reached only by connections that are up and get no answers at the moment
 * (CAUSE_UNANSWERED). They may be lost, or only slow: new connections go elsewhere where a policy says where, and
 * nothing else changes. What a gateway said before it stopped reporting does not count, because it cannot end that.
 */
export function unansweredClusters(gateways: readonly Gateway[]): ReadonlySet<string> {
  const up = gateways.flatMap(answersOf)
  const unanswered = new Set(up.flatMap(({ cluster, isUnanswered }) => (isUnanswered ? [cluster] : [])))
  for (const { cluster, isUnanswered } of up) if (!isUnanswered) unanswered.delete(cluster)
  return unanswered
}

/** Whether a change of a Gateway may change unansweredClusters(). Undefined: anything may have changed. */
export function changesAnswers(
  change: { readonly type: string; readonly object: Gateway; readonly previous?: Gateway | undefined } | undefined,
): boolean {
  if (change?.type !== 'set' || change.previous === undefined || change.previous === change.object) return true
  const text = (gateway: Gateway): string =>
    answersOf(gateway)
      .map(({ cluster, isUnanswered }) => `${cluster} ${isUnanswered}`)
      .join()
  return text(change.previous) !== text(change.object)
}

/** The connections that are up. */
function answersOf(gateway: Gateway): readonly { readonly cluster: string; readonly isUnanswered: boolean }[] {
  const isSilent = isTakenAsSilent(gateway)
  const up = (gateway.status?.connections ?? []).filter(({ state }) => state === 'up')
  return up.map(({ cluster, cause }) => ({ cluster, isUnanswered: cause === CAUSE_UNANSWERED && !isSilent }))
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
 * Returns reachableClusters() without the refused ones. While no gateway has reported: all that are not refused, or
 * undefined if none is refused.
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
