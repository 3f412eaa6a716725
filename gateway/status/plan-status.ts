/** Gateway.status from what is planned, measured and seen in the kernel. Pure. */
import { formatAddressPort } from '../../model/addresses/address-port.ts'
import { formatAddress } from '../../model/addresses/ip.ts'
import { setCondition } from '../../model/conditions.ts'
import type { Condition, ConnectionStatus, Gateway } from '../../model/objects.ts'
import { MAX_CONNECTION_MESSAGE_LENGTH, MAX_FAILURE_LENGTH, fitText } from '../../model/status-text.ts'
import type { DeviceState, PeerState } from '../../kernel/wireguard/wireguard.ts'
import { connectionMessage } from './plan-connection-message.ts'
import type { LanePlan, PlannedPeer } from '../cable/wireguard/plan-lanes.ts'
import { readyFinding, upText } from './plan-ready.ts'
import type { MeasuredHealth } from '../health/probe-loop.ts'
import { healthKey } from '../world.ts'

export interface StatusInit {
  readonly node: string
  readonly version: string
  readonly driver: string
  readonly nowMs: number
  /** Of the clock that never jumps. */
  readonly monotonicMs: number
  /** GatewayWorld.handshakes. */
  readonly handshakes: ReadonlyMap<string, number>
  /** Milliseconds since something came in from a peer of a lane; undefined where nothing did. */
  readonly heardMs: (lane: number, publicKey: string) => number | undefined
  readonly lanes: readonly LanePlan[]
  readonly devices: ReadonlyMap<number, DeviceState>
  readonly health: ReadonlyMap<string, MeasuredHealth>
  /** Connections, by healthKey(), whose routes are in place. */
  readonly routed: ReadonlySet<string>
  /** Why the last round failed; undefined when it did not. */
  readonly failure: string | undefined
  /** Those of the status so far. */
  readonly conditions: readonly Condition[]
}

/** All of it but the heartbeat, which is added when it is written. */
export function planStatus(init: StatusInit): Gateway {
  // It tells of all that failed in a round, which may be hundreds of routes.
  const failure = init.failure === undefined ? undefined : fitText(init.failure, MAX_FAILURE_LENGTH)
  const connections = init.lanes.flatMap((lane) => lane.peers.map((peer) => connection(init, lane, peer)))
  const ready = readyFinding({ lanes: init.lanes.length, connections, failure })
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata: { name: init.node },
    status: {
      version: init.version,
      lanes: init.lanes.map(({ lane, device, mtu }) => ({ lane, device, mtu, driver: init.driver })),
      connections,
      up: upText(connections),
      conditions: setCondition(init.conditions, ready, init.nowMs),
      ...(failure === undefined ? {} : { failure }),
    },
  }
}

const PROCESS_SILENT = 'the lane carries traffic, but the gateway process at its other end does not answer'

function connection(init: StatusInit, lane: LanePlan, planned: PlannedPeer): ConnectionStatus {
  const peer = init.devices.get(lane.lane)?.peers.find((one) => one.publicKey === planned.publicKey)
  const health = init.health.get(healthKey(lane.lane, planned.cluster))
  const { rttMs, loss } = health?.figures ?? {}
  const handshakeAge = handshakeAgeMs(init, planned.publicKey)
  const state = reportedState(init, healthKey(lane.lane, planned.cluster))
  return {
    cluster: planned.cluster,
    lane: lane.lane,
    endpoint: planned.endpoint,
    state,
    message: state === 'up' && health?.kernelOnly === true ? PROCESS_SILENT : message(init, lane, planned, state),
    ...(peer?.endpoint === undefined ? {} : { usingAddress: formatAddressPort(peer.endpoint) }),
    usingNat: isBehindNat(planned, peer),
    ...(rttMs === undefined ? {} : { rttMs: Math.round(rttMs * 100) / 100 }),
    ...(loss === undefined ? {} : { loss: Math.round(loss * 1000) / 1000 }),
    ...(handshakeAge === undefined ? {} : { handshakeAgeSeconds: Math.floor(handshakeAge / 1000) }),
    rxBytes: peer?.rxBytes ?? 0,
    txBytes: peer?.txBytes ?? 0,
  }
}

function handshakeAgeMs({ handshakes, monotonicMs }: StatusInit, publicKey: string): number | undefined {
  const atMs = handshakes.get(publicKey)
  return atMs === undefined ? undefined : Math.max(0, monotonicMs - atMs)
}

/** Up is told once traffic can use the connection, not a moment earlier; down is told at once. */
function reportedState(init: StatusInit, key: string): ConnectionStatus['state'] {
  const state = init.health.get(key)?.state ?? 'connecting'
  return state === 'up' && !init.routed.has(key) ? 'connecting' : state
}

function message(
  init: StatusInit,
  { lane, config }: LanePlan,
  { cluster, publicKey, choice, doubt }: PlannedPeer,
  state: ConnectionStatus['state'],
): string {
  if (state === 'up') return ''
  const sinceMs = init.health.get(healthKey(lane, cluster))?.sinceMs
  const heardMs = init.heardMs(lane, publicKey)
  const handshakeAge = handshakeAgeMs(init, publicKey)
  const text = connectionMessage({
    state,
    choice,
    peer: init.devices.get(lane)?.peers.find((one) => one.publicKey === publicKey),
    listenPort: config.listenPort,
    ...(doubt === undefined ? {} : { doubt }),
    ...(sinceMs === undefined ? {} : { forMs: init.monotonicMs - sinceMs }),
    ...(heardMs === undefined ? {} : { heardMs }),
    ...(handshakeAge === undefined ? {} : { handshakeAgeMs: handshakeAge }),
  })
  return fitText(text, MAX_CONNECTION_MESSAGE_LENGTH)
}

/** The far end is where it has no address itself: where it does not tell about, or where the broker saw it. */
function isBehindNat(planned: PlannedPeer, peer: PeerState | undefined): boolean {
  const { endpoint } = peer ?? {}
  if (endpoint === undefined) return false
  const own = planned.candidates.filter(({ kind }) => kind !== 'observed')
  const [address, { port }] = [formatAddress(endpoint.address), endpoint]
  return !own.some((candidate) => candidate.address === address && candidate.port === port)
}
