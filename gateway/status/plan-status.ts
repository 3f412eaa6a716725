/** Gateway.status from what is planned, measured and seen in the kernel. Pure. */
import type { Failure } from '../../runtime/error-reason.ts'
import { type AddressPort, formatAddressPort } from '../../model/addresses/address-port.ts'
import { formatAddress } from '../../model/addresses/ip.ts'
import {
  CONDITION_DRAINED,
  CONDITION_KEYS_ROTATED,
  type ConditionFinding,
  setCondition,
} from '../../model/conditions.ts'
import type { Condition, ConnectionStatus, Gateway } from '../../model/objects.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import { problemText } from '../../model/reasons/problem.ts'
import { MAX_CONNECTION_MESSAGE_LENGTH, MAX_FAILURE_LENGTH, fitText } from '../../model/status-text.ts'
import { type LaneState, type LinkState, linkKey } from '../cable/cable.ts'
import { type ConnectionTrouble, connectionTrouble } from './plan-connection-message.ts'
import { linkMtu } from '../cable/link-sizes.ts'
import type { LanePlan, PlannedLink } from '../cable/plan-lanes.ts'
import { narrowProblem } from './size-events.ts'
import { named, readyFinding, upText } from './plan-ready.ts'
import type { LinkHealth } from '../health/probing.ts'
import { healthKey } from '../world.ts'

export interface StatusInit {
  readonly node: string
  readonly version: string
  readonly driver: string
  /** CableRules.sessionMs. */
  readonly sessionMs: number
  readonly nowMs: number
  /** Of the clock that never jumps. */
  readonly monotonicMs: number
  /** Milliseconds since something came in over a link, by linkKey(); undefined where nothing did. */
  readonly heardMs: (key: string) => number | undefined
  readonly lanes: readonly LanePlan[]
  /** Cable.observe(). */
  readonly laneStates: ReadonlyMap<number, LaneState>
  readonly health: ReadonlyMap<string, LinkHealth>
  /** Connections, by healthKey(), whose routes are in place. */
  readonly routed: ReadonlySet<string>
  /** Why the last round failed; undefined when it did not. */
  readonly failure: Failure | undefined
  /** Of a gateway that is about to go: clusters with traffic over it lately. Absent: it is not about to go. */
  readonly flowsWith?: readonly string[]
  /** Of a key that is made anew, or was. Absent: nothing to say. */
  readonly rotation?: ConditionFinding
  /** Those of the status so far. */
  readonly conditions: readonly Condition[]
}

/** All of it but the heartbeat, which is added when it is written. */
export function planStatus(init: StatusInit): Gateway {
  // It names all that failed in a round, which may be hundreds of routes.
  const failure = init.failure === undefined ? undefined : fitted(init.failure)
  const connections = init.lanes.flatMap((lane) => lane.links.map((link) => connection(init, lane, link)))
  const ready = readyFinding({ lanes: init.lanes.length, connections, failure: failure?.message })
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata: { name: init.node },
    status: {
      version: init.version,
      lanes: init.lanes.map(({ ownLane: lane, remoteLane, device, mtu }) => {
        return { lane, remoteLane, device, mtu, driver: init.driver }
      }),
      connections,
      up: upText(connections),
      conditions: rotationCondition(init, drainedCondition(init, setCondition(init.conditions, ready, init.nowMs))),
      ...(failure === undefined ? {} : { failure: failureText(failure.message), failureReason: failure.reason }),
    },
  }
}

function drainedCondition({ flowsWith, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  const type = CONDITION_DRAINED
  if (flowsWith === undefined) return list.filter((one) => one.type !== type)
  const finding: ConditionFinding =
    flowsWith.length === 0
      ? { type, status: 'True', reason: 'NothingFlows' satisfies ReasonCode, message: 'no traffic in the last 10 s' }
      : {
          type,
          status: 'False',
          reason: 'StillCarries' satisfies ReasonCode,
          message: `traffic with ${named(flowsWith)} in the last 10 s`,
        }
  return setCondition(list, finding, nowMs)
}

function rotationCondition({ rotation, nowMs }: StatusInit, list: readonly Condition[]): readonly Condition[] {
  if (rotation !== undefined) return setCondition(list, rotation, nowMs)
  // Of an earlier run of the process: what it waited for is not known any more.
  return list.filter(({ type, status }) => type !== CONDITION_KEYS_ROTATED || status === 'True')
}

function fitted({ message, reason }: Failure): Failure {
  return { message: fitText(message, MAX_FAILURE_LENGTH), reason }
}

function failureText(message: string): string {
  return fitText(problemText({ reason: 'RoundFailed', message }), MAX_FAILURE_LENGTH)
}

/** Why an up link is not all that it should be. */
const PROCESS_SILENT = 'the lane carries traffic, but the gateway process at its other end does not answer'

function connection(init: StatusInit, lane: LanePlan, planned: PlannedLink): ConnectionStatus {
  const link = init.laneStates.get(lane.remoteLane)?.links.get(linkKey(planned))
  const key = healthKey(lane.remoteLane, planned.cluster)
  const health = init.health.get(key)
  const { rttMs, loss } = health?.figures ?? {}
  const handshakeAge = handshakeAgeMs(init, link)
  const state = reportedState(init, key)
  return {
    cluster: planned.cluster,
    lane: lane.ownLane,
    remoteLane: lane.remoteLane,
    endpoint: planned.endpoint,
    state,
    ...(state === 'up' ? { message: upMessage(lane, health) } : trouble(init, { lane, planned, link, state })),
    ...(state === 'up' && health?.held === true ? { held: true } : {}),
    ...(link?.at === undefined ? {} : { usingAddress: formatAddressPort(link.at) }),
    usingNat: isBehindNat(planned, link?.at),
    ...(rttMs === undefined ? {} : { rttMs: Math.round(rttMs * 100) / 100 }),
    ...(loss === undefined ? {} : { loss: Math.round(loss * 1000) / 1000 }),
    ...sizes(lane, health),
    ...(handshakeAge === undefined ? {} : { handshakeAgeSeconds: Math.floor(handshakeAge / 1000) }),
    rxBytes: link?.rxBytes ?? 0,
    txBytes: link?.txBytes ?? 0,
  }
}

function upMessage({ mtu: deviceMtu }: LanePlan, health: LinkHealth | undefined): string {
  if (health?.heldUntil !== undefined) {
    const until = new Date(health.heldUntil).toISOString()
    const text = `it went down again and again; until ${until} it carries only where there is no other way`
    return problemText({ reason: 'LinkFlaps', message: text })
  }
  if (health?.kernelOnly === true) return PROCESS_SILENT
  const mtu = linkMtu(deviceMtu, health)
  return mtu < deviceMtu ? problemText(narrowProblem(mtu, deviceMtu)) : ''
}

function handshakeAgeMs({ monotonicMs }: StatusInit, link: LinkState | undefined): number | undefined {
  return link?.handshakeMs === undefined ? undefined : Math.max(0, monotonicMs - link.handshakeMs)
}

/** Up is reported once traffic can use the connection, not a moment earlier; down is reported at once. */
function reportedState(init: StatusInit, key: string): ConnectionStatus['state'] {
  const state = init.health.get(key)?.state ?? 'connecting'
  return state === 'up' && !init.routed.has(key) ? 'connecting' : state
}

interface ReportedLink {
  readonly lane: LanePlan
  readonly planned: PlannedLink
  readonly link: LinkState | undefined
  readonly state: Exclude<ConnectionStatus['state'], 'up'>
}

function sizes(lane: LanePlan, health: LinkHealth | undefined): Pick<ConnectionStatus, 'mtu' | 'receiveMtu'> {
  if (health?.sendSize === undefined) return {}
  const { receiveSize } = health
  return { mtu: linkMtu(lane.mtu, health), ...(receiveSize === undefined ? {} : { receiveMtu: receiveSize }) }
}

function trouble(init: StatusInit, { lane, planned, link, state }: ReportedLink): ConnectionTrouble {
  const { cluster, choice, doubt } = planned
  const sinceMs = init.health.get(healthKey(lane.remoteLane, cluster))?.sinceMs
  const heardMs = init.heardMs(linkKey(planned))
  const handshakeAge = handshakeAgeMs(init, link)
  const found = connectionTrouble({
    state,
    choice,
    link,
    listenPort: lane.port,
    sessionMs: init.sessionMs,
    ...(doubt === undefined ? {} : { doubt }),
    ...(sinceMs === undefined ? {} : { forMs: init.monotonicMs - sinceMs }),
    ...(heardMs === undefined ? {} : { heardMs }),
    ...(handshakeAge === undefined ? {} : { handshakeAgeMs: handshakeAge }),
  })
  return { ...found, message: fitText(found.message, MAX_CONNECTION_MESSAGE_LENGTH) }
}

/** The far end is where it has no address itself: at one that it does not announce, or where the broker saw it. */
function isBehindNat({ candidates }: PlannedLink, at: AddressPort | undefined): boolean {
  if (at === undefined) return false
  const address = formatAddress(at.address)
  const own = candidates.filter(({ kind }) => kind !== 'observed')
  return !own.some((candidate) => candidate.address === address && candidate.port === at.port)
}
