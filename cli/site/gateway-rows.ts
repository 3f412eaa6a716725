/** The gateways of a cluster as `sealane show gateways` shows them: lane, links, and how much each carries. Pure. */
import { CONDITION_READY, findCondition } from '../../model/conditions.ts'
import { LABEL_GATEWAY, laneOfLabel, leavingReason } from '../../model/lanes/gateway-node.ts'
import { HEARTBEAT_OLD_MS, heartbeatAgeMs, isTakenAsSilent } from '../../model/lanes/heartbeat.ts'
import type { Gateway, Node } from '../../model/objects.ts'
import { agoText } from './connection-rows.ts'

export interface GatewayRow {
  readonly node: string
  /** Absent: it serves none. */
  readonly lane?: number
  /**
   * serving: it reports a lane. standing by: its Node has the label, and another node serves. leaving: its Node is about
   * to go. unknown: it has stopped to report.
   */
  readonly state: 'serving' | 'standing by' | 'leaving' | 'unknown'
  /** Links that are up, and all. */
  readonly linksUp: number
  readonly links: number
  /** Clusters with a link that is up, and all. */
  readonly clustersUp: number
  readonly clusters: number
  /** Since when the gateway is ready, or is not: RFC 3339; absent where it does not say. */
  readonly since?: string
  /** Of all octets over the links of this cluster's gateways since these were made, 0 to 1; absent: nothing flowed. */
  readonly share?: number
  readonly heardSecondsAgo?: number
  readonly message: string
}

/** `nodes`: all of the cluster. `nowMs` is milliseconds since 1970 by this machine's clock. By lane, then by name. */
export function gatewayRows(gateways: readonly Gateway[], nodes: readonly Node[], nowMs: number): GatewayRow[] {
  const octets = new Map(gateways.map((gateway) => [gateway.metadata.name, octetsOf(gateway)]))
  const all = [...octets.values()].reduce((sum, one) => sum + one, 0)
  const byName = new Map(nodes.map((node) => [node.metadata.name, node]))
  const serving = gateways.map((gateway): GatewayRow => {
    const share = all === 0 ? {} : { share: (octets.get(gateway.metadata.name) ?? 0) / all }
    return { ...servingRow(gateway, byName.get(gateway.metadata.name), nowMs), ...share }
  })
  const waiting = nodes.filter(
    ({ metadata }) => metadata.labels?.[LABEL_GATEWAY] !== undefined && !octets.has(metadata.name),
  )
  return [...serving, ...waiting.map(waitingRow)].sort(byLane)
}

function servingRow(gateway: Gateway, node: Node | undefined, nowMs: number): GatewayRow {
  const { status } = gateway
  const connections = status?.connections ?? []
  const up = connections.filter(({ state }) => state === 'up')
  const ageMs = heartbeatAgeMs(gateway, nowMs)
  const isOld = isTakenAsSilent(gateway) || (ageMs ?? 0) >= HEARTBEAT_OLD_MS
  const ready = findCondition(status?.conditions, CONDITION_READY)
  const lane = status?.lanes[0]?.lane
  const leaving = node === undefined ? undefined : leavingReason(node)
  const heardSecondsAgo = ageMs === undefined ? undefined : Math.floor(ageMs / 1000)
  const count = (list: typeof connections): number => new Set(list.map(({ cluster }) => cluster)).size
  return {
    node: gateway.metadata.name,
    ...(lane === undefined ? {} : { lane }),
    state: isOld ? 'unknown' : leaving === undefined ? 'serving' : 'leaving',
    linksUp: up.length,
    links: connections.length,
    clustersUp: count(up),
    clusters: count(connections),
    ...(ready === undefined ? {} : { since: ready.lastTransitionTime }),
    ...(heardSecondsAgo === undefined ? {} : { heardSecondsAgo }),
    message: isOld ? `last heard ${agoText(heardSecondsAgo ?? 0)}` : (leaving ?? ready?.message ?? ''),
  }
}

function waitingRow(node: Node): GatewayRow {
  const leaving = leavingReason(node)
  const lane = laneOfLabel(node.metadata.labels?.[LABEL_GATEWAY] ?? '')
  return {
    node: node.metadata.name,
    state: leaving === undefined ? 'standing by' : 'leaving',
    ...{ linksUp: 0, links: 0, clustersUp: 0, clusters: 0 },
    message: leaving ?? mayText(lane),
  }
}

function mayText(lane: ReturnType<typeof laneOfLabel>): string {
  if (lane === undefined) return `its label ${LABEL_GATEWAY} says no lane`
  return lane === 'any' ? 'may serve any lane' : `may serve lane ${lane}`
}

function octetsOf({ status }: Gateway): number {
  return (status?.connections ?? []).reduce((sum, { rxBytes, txBytes }) => sum + rxBytes + txBytes, 0)
}

function byLane(a: GatewayRow, b: GatewayRow): number {
  return (a.lane ?? Infinity) - (b.lane ?? Infinity) || (a.node < b.node ? -1 : 1)
}
