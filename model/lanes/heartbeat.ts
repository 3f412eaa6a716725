/**
 * A gateway's status has a time. Readers of the status find by it how much the status still says. Pure;
 * reconcile/heartbeats.ts finds which heartbeats have stopped.
 */
import { CONDITION_READY, REASON_STATUS_STALE, findCondition } from '../conditions.ts'
import type { ConnectionStatus, Gateway } from '../objects.ts'

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
