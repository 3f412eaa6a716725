/**
 * The gateways of a cluster for `sealane show gateways`: the lane, the links and the share of the traffic of each.
 * Pure.
 */
import {
  CONDITION_BEHIND_NAT,
  CONDITION_DRAINED,
  CONDITION_NAT_FILTERS,
  CONDITION_NAT_HAIRPINS,
  CONDITION_READY,
  type ConnectionState,
  type ConnectionStatus,
  type Endpoint,
  type Gateway,
  type Node,
  endpointName,
  findCondition,
} from '../../model/model.ts'
import {
  type BetterRung,
  HEARTBEAT_OLD_MS,
  LABEL_GATEWAY,
  type LinkRung,
  gatewayProblem,
  heartbeatAgeMs,
  isTakenAsSilent,
  laneOfLabel,
  leavingReason,
  linkRung,
  whyNotBetter,
} from '../../model/lanes/lanes.ts'
import { endpointVia } from '../../model/schemas/schemas.ts'
import { problemText } from '../../model/reasons/reasons.ts'

export interface GatewayRow {
  readonly node: string
  /** Undefined if the node serves no lane. */
  readonly lane?: number
  /**
   * serving: the gateway reports a lane. standing by: its Node is labelled, and another node serves. draining: it is
   * about to be removed. drained: as draining, and it carries no traffic any more. silent: it no longer reports.
   * refused: its Node is labelled, and cannot be a gateway in its current state.
   */
  readonly state: 'serving' | 'standing by' | 'draining' | 'drained' | 'silent' | 'refused'
  /** The number of links that are up, and the number of all links. */
  readonly linksUp: number
  readonly links: number
  /** The number of clusters with a link that is up, and the number of all clusters. */
  readonly clustersUp: number
  readonly clusters: number
  /**
   * The RFC 3339 time since when the gateway is ready, not ready, draining, drained or silent. Undefined if it is not
   * known.
   */
  readonly since?: string
  /**
   * Its share, 0 to 1, of all octets over the links of this cluster's gateways since these links were created.
   * Undefined if there was no traffic.
   */
  readonly share?: number
  readonly heardSecondsAgo?: number
  /** What is known of the NAT in front of it. Absent: it is behind none, or its release does not say. */
  readonly nat?: string
  /** The reason codes of what is known of it: the kind, whom it lets in, whether it leads back inside. Absent: none. */
  readonly natReasons?: readonly string[]
  readonly message: string
}

const NAT_CONDITIONS = [CONDITION_BEHIND_NAT, CONDITION_NAT_FILTERS, CONDITION_NAT_HAIRPINS]

/**
 * `nodes` are all Nodes of the cluster. `nowMs` is in milliseconds since 1970 by this machine's clock. Sorted by lane,
 * then by name.
 */
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
  const servers = new Map(serving.map(({ lane, node }) => [lane, node]))
  return [...serving, ...waiting.map((node) => waitingRow(node, servers))].sort(byLane)
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
  const drained = findCondition(status?.conditions, CONDITION_DRAINED)
  const problem = node === undefined ? undefined : gatewayProblem(node)
  const heardSecondsAgo = ageMs === undefined ? undefined : Math.floor(ageMs / 1000)
  const nat = findCondition(status?.conditions, CONDITION_BEHIND_NAT)?.message
  const natReasons = NAT_CONDITIONS.flatMap((type) => findCondition(status?.conditions, type)?.reason ?? [])
  const count = (list: typeof connections): number => new Set(list.map(({ cluster }) => cluster)).size
  const goes = leaving !== undefined || drained !== undefined
  const since = isOld ? status?.heartbeatTime : (drained ?? ready)?.lastTransitionTime
  return {
    node: gateway.metadata.name,
    ...(lane === undefined ? {} : { lane }),
    state: isOld ? 'silent' : drained?.status === 'True' ? 'drained' : goes ? 'draining' : 'serving',
    linksUp: up.length,
    links: connections.length,
    clustersUp: count(up),
    clusters: count(connections),
    ...(since === undefined ? {} : { since }),
    ...(heardSecondsAgo === undefined ? {} : { heardSecondsAgo }),
    ...(nat === undefined ? {} : { nat }),
    ...(natReasons.length === 0 ? {} : { natReasons }),
    message: isOld
      ? `last heard ${agoText(heardSecondsAgo ?? 0)}`
      : joined(leaving, drained?.message ?? ready?.message, problem === undefined ? undefined : problemText(problem)),
  }
}

function waitingRow(node: Node, servers: ReadonlyMap<number | undefined, string>): GatewayRow {
  const problem = gatewayProblem(node)
  const leaving = leavingReason(node)
  return {
    node: node.metadata.name,
    state: problem !== undefined ? 'refused' : leaving === undefined ? 'standing by' : 'draining',
    ...{ linksUp: 0, links: 0, clustersUp: 0, clusters: 0 },
    message: problem === undefined ? (leaving ?? mayText(node, servers)) : problemText(problem),
  }
}

function mayText({ metadata }: Node, servers: ReadonlyMap<number | undefined, string>): string {
  const lane = laneOfLabel(metadata.labels?.[LABEL_GATEWAY] ?? '')
  if (typeof lane !== 'number') return 'may serve any lane'
  const server = servers.get(lane)
  return `may serve lane ${lane}${server === undefined ? '' : `, which ${server} serves`}`
}

/** A note for people if there is no gateway. Undefined if there are some. */
export function noGatewayNote(rows: readonly GatewayRow[]): string | undefined {
  if (rows.length > 0) return undefined
  const message = `no node of this cluster is a gateway, so it reaches no other cluster; label a node ${LABEL_GATEWAY}=true`
  return problemText({ reason: 'NoGateway', message: `${message}, or name one in site.yaml` })
}

function joined(...parts: readonly (string | undefined)[]): string {
  return parts.filter((part) => part !== undefined && part !== '').join('; ')
}

function octetsOf({ status }: Gateway): number {
  return (status?.connections ?? []).reduce((sum, { rxBytes, txBytes }) => sum + rxBytes + txBytes, 0)
}

function byLane(a: GatewayRow, b: GatewayRow): number {
  return (a.lane ?? Infinity) - (b.lane ?? Infinity) || (a.node < b.node ? -1 : 1)
}

// The connections for `sealane show connections`, each with the age of its gateway's report. Pure.

export interface ConnectionRow extends Omit<ConnectionStatus, 'state'> {
  /** The local gateway of the connection. */
  readonly node: string
  /** unknown: its gateway no longer reports. */
  readonly state: ConnectionState | 'unknown'
  /** The time since the gateway's report, by this machine's clock. Undefined if its release does not report a time. */
  readonly heardSecondsAgo?: number
  /** Absent while the connection has no address. */
  readonly rung?: LinkRung
  /** Why it has no better rung, the best first. Absent for a direct connection. */
  readonly notBetter?: readonly BetterRung[]
  /** Members whose relays alone may carry the connection, by the topology. Absent: it may have any way. */
  readonly via?: readonly string[]
}

/** The ends of connections, by which their rungs are known. */
export interface KnownEnds {
  /** Id of this cluster. Absent before it is a member. */
  readonly cluster?: string | undefined
  readonly endpoints: readonly Endpoint[]
}

/**
 * Takes milliseconds since 1970 by this machine's clock, which may differ from the gateway's. So a report counts as old
 * only if it is far too old, or if the agent, which watches the reports, has found that they have stopped.
 */
export function connectionRows(
  gateways: readonly Gateway[],
  nowMs: number,
  known: KnownEnds = { endpoints: [] },
): readonly ConnectionRow[] {
  const byName = new Map(known.endpoints.map((endpoint) => [endpoint.metadata.name, endpoint]))
  return gateways.flatMap((gateway) => {
    const ageMs = heartbeatAgeMs(gateway, nowMs)
    const isOld = isTakenAsSilent(gateway) || (ageMs ?? 0) >= HEARTBEAT_OLD_MS
    const heard = ageMs === undefined ? {} : { heardSecondsAgo: Math.floor(ageMs / 1000) }
    return (gateway.status?.connections ?? []).map((connection): ConnectionRow => {
      const own = endpointName(known.cluster ?? '', gateway.metadata.name, connection.lane)
      const far = byName.get(connection.endpoint)
      const ends = { own: byName.get(own), far }
      const rung = linkRung(connection, ends.own, far)
      const via = far === undefined ? undefined : endpointVia(far)
      const notBetter = whyNotBetter({
        ...{ connection, rung, ...ends, conditions: gateway.status?.conditions },
        via: typeof via === 'object' ? via : undefined,
      })
      const way = {
        ...(rung === undefined ? {} : { rung }),
        ...(notBetter.length === 0 ? {} : { notBetter }),
        ...(typeof via === 'object' ? { via } : {}),
      }
      const row = { node: gateway.metadata.name, ...connection, ...heard, ...way }
      if (!isOld) return row
      const last = ageMs === undefined ? '' : `, last heard ${agoText(Math.floor(ageMs / 1000))}`
      return { ...row, state: 'unknown', message: `was ${connection.state}${last}` }
    })
  })
}

/** `3s ago`, `4m12s ago`, `3h5m ago`. */
export function agoText(seconds: number): string {
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)]
  if (hours > 0) return `${hours}h${minutes % 60}m ago`
  return minutes > 0 ? `${minutes}m${seconds % 60}s ago` : `${seconds}s ago`
}
