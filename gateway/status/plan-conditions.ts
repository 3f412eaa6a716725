/** Plans the conditions of a gateway, and the Events that it reports when its state changes. Pure. */
import type { MeasuredPeer } from '../../kernel/probing/probing.ts'
import type { ObjectEvent } from '../../kubeapi/kubeapi.ts'
import {
  CONDITION_DRAINED,
  CONDITION_READY,
  type ConditionFinding,
  type ConnectionStatus,
  type Gateway,
  NEITHER_CALLABLE,
  findCondition,
} from '../../model/model.ts'
import { remoteLaneOf } from '../../model/lanes/lanes.ts'
import { type Problem, type ReasonCode, problem } from '../../model/reasons/reasons.ts'
import { type LanePlan, linkMtu } from '../links/links.ts'
import { healthKey } from '../world/world.ts'

/** Most clusters that one sentence names. */
const MOST_NAMES = 10

export interface ReadyInit {
  readonly lanes: number
  readonly connections: readonly ConnectionStatus[]
  readonly failure: string | undefined
}

/**
 * The condition Ready: whether every other cluster is reachable from here. The best link of a cluster decides. If it is
 * up, links that are not up are only named. The worst problem gives the reason.
 */
export function readyFinding({ lanes, connections, failure }: ReadyInit): ConditionFinding {
  const finding = (status: 'True' | 'False', reason: ReasonCode, message: string): ConditionFinding => {
    return { type: CONDITION_READY, status, reason, message }
  }
  if (failure !== undefined) return finding('False', 'RoundFailed', failure)
  if (lanes === 0) return finding('False', 'NoLane', 'this node serves no lane')
  if (connections.length === 0)
    return finding('True', 'NoOtherCluster', 'no other cluster has a gateway to link with yet')
  const reached = new Set(connections.filter(({ state }) => state === 'up').map(({ cluster }) => cluster))
  const cutOff = connections.filter(({ cluster }) => !reached.has(cluster))
  const connecting = cutOff.filter(({ state }) => state === 'connecting')
  const silent = cutOff.filter(({ state }) => state === 'down')
  if (silent.length > 0)
    return finding('False', 'LaneProbeTimeout', `no answer to probes from ${named(silent.map(clusterText))}`)
  if (connecting.length > 0) {
    const hopeless = connecting.filter(({ cause }) => cause === 'NeitherCallable')
    const more =
      hopeless.length === 0
        ? ''
        : `; ${NEITHER_CALLABLE}: this gateway, and that of ${named(hopeless.map(clusterText))}`
    return finding('False', 'LaneConnecting', `not connected yet to ${named(connecting.map(clusterText))}${more}`)
  }
  const spare = connections.filter(({ state }) => state !== 'up')
  if (spare.length === 0) return finding('True', 'LanesUp', '')
  return finding(
    'True',
    'SomeLinksDown',
    `not up: ${named(spare.map(linkText))}; each cluster has another link that is up`,
  )
}

/** The connections that are up, of all connections: `2/3`. */
export function upText(connections: readonly ConnectionStatus[]): string {
  return `${connections.filter(({ state }) => state === 'up').length}/${connections.length}`
}

/** Events about what changed. A restart of this process changes nothing, so it repeats no Event. */
export function gatewayEvents(before: Gateway | undefined, after: Gateway): ObjectEvent[] {
  return [...laneEvents(before, after), ...drainEvents(before, after)]
}

function drainEvents(before: Gateway | undefined, after: Gateway): ObjectEvent[] {
  const [was, is] = [before, after].map((one) => findCondition(one?.status?.conditions, CONDITION_DRAINED)?.status)
  const event = (reason: ReasonCode, note: string): ObjectEvent => {
    const { name } = after.metadata
    return { regarding: { kind: 'Gateway', name, uid: before?.metadata.uid }, type: 'Normal', reason, note }
  }
  const events: ObjectEvent[] = []
  if (was === undefined && is !== undefined)
    events.push(event('GatewayDraining', 'the gateway is draining: its traffic moves to other gateways'))
  if (was !== 'True' && is === 'True') events.push(event('NothingFlows', 'no traffic flows over this gateway'))
  if (was !== undefined && is === undefined)
    events.push(event('GatewayUndrained', 'this gateway accepts traffic again'))
  return events
}

/**
 * Events about lanes that came up or went down, or whose hold began or ended. A restart of this process repeats none.
 */
export function laneEvents(before: Gateway | undefined, after: Gateway): ObjectEvent[] {
  const key = (one: ConnectionStatus): string => `${one.lane}/${remoteLaneOf(one)}/${one.cluster}`
  const was = new Map((before?.status?.connections ?? []).map((one) => [key(one), one]))
  const { name } = after.metadata
  const regarding = { kind: 'Gateway' as const, name, uid: before?.metadata.uid }
  return (after.status?.connections ?? []).flatMap((one): ObjectEvent[] => {
    const last = was.get(key(one))
    const lane = `lane ${one.lane} to ${farText(one)}`
    const events: ObjectEvent[] = []
    if (one.state === 'up' && last?.state !== 'up') {
      events.push({ regarding, type: 'Normal', reason: 'LaneUp', note: `${lane} is up` })
    }
    if (one.state === 'down' && last?.state === 'up') {
      events.push({ regarding, type: 'Warning', reason: 'LaneDown', note: `${lane} is down: ${one.message}` })
    }
    if (one.held === true && last?.held !== true) {
      events.push({ regarding, type: 'Warning', reason: 'LinkFlaps', note: `${lane}: ${one.message}` })
    }
    if (one.state === 'up' && one.held !== true && last?.held === true) {
      events.push({ regarding, type: 'Normal', reason: 'LinkSteady', note: `${lane} is used again` })
    }
    return events
  })
}

/** The cluster, with the remote lane number if it differs from this one's: `paris`, `lane 2 of paris`. */
function farText(connection: ConnectionStatus): string {
  return remoteLaneOf(connection) === connection.lane ? connection.cluster : linkText(connection)
}

function clusterText({ cluster }: ConnectionStatus): string {
  return cluster
}

function linkText(connection: ConnectionStatus): string {
  return `lane ${remoteLaneOf(connection)} of ${connection.cluster}`
}

/** Each text once, sorted, and at most MOST_NAMES of them. */
export function named(texts: readonly string[]): string {
  const names = [...new Set(texts)].sort()
  const rest = names.length - MOST_NAMES
  return `${names.slice(0, MOST_NAMES).join(', ')}${rest > 0 ? ` and ${rest} more` : ''}`
}

// Reports once that packets of some sizes do not pass a link, and once that they do again.

/** Both values are octets: the largest packet that reaches the far end, and the largest that the device takes. */
export function narrowProblem(mtu: number, deviceMtu: number): Problem {
  const message = `packets larger than ${mtu} octets are lost without an ICMP error; the MTU of the device is ${deviceMtu}`
  return problem('PathMtuReduced', message)
}

/** The last reported size of each link that carries less than its device takes, by healthKey(). */
export type ReportedSizes = ReadonlyMap<string, number>

interface SizeEvents {
  readonly events: readonly ObjectEvent[]
  readonly reported: ReportedSizes
}

/**
 * What changed since `reported`. While sizes are being probed nothing is reported, because the size is not known yet.
 */
export function sizeEvents(
  reported: ReportedSizes,
  gateway: Gateway,
  lanes: readonly LanePlan[],
  health: ReadonlyMap<string, MeasuredPeer>,
): SizeEvents {
  const { name, uid } = gateway.metadata
  const regarding = { kind: 'Gateway' as const, name, uid }
  const events: ObjectEvent[] = []
  const now = new Map<string, number>()
  for (const lane of lanes) {
    for (const { cluster } of lane.links) {
      const key = healthKey(lane.remoteLane, cluster)
      const [before, view] = [reported.get(key), health.get(key)]
      const size = linkMtu(lane.mtu, view)
      const isNarrow = size < lane.mtu
      if (view?.state !== 'up' || view.isTryingSizes) {
        if (before !== undefined) now.set(key, before)
        continue
      }
      if (isNarrow) now.set(key, size)
      const link = `lane ${lane.ownLane} to lane ${lane.remoteLane} of ${cluster}`
      if (isNarrow && size !== before) {
        const { reason, message } = narrowProblem(size, lane.mtu)
        events.push({ regarding, type: 'Warning', reason, note: `${link}: ${message}` })
      } else if (!isNarrow && before !== undefined) {
        const note = `${link}: packets of ${lane.mtu} octets pass again`
        events.push({ regarding, type: 'Normal', reason: 'PathMtuRestored', note })
      }
    }
  }
  return { events, reported: now }
}
