/** Gateway.status from what is planned, measured and seen in the kernel. Pure. */
import type { ConnectionStatus, Gateway } from '../model/objects.ts'
import type { DeviceState, PeerState } from '../kernel/wireguard.ts'
import type { LanePlan, PlannedPeer } from './plan-lanes.ts'
import type { MeasuredHealth } from './probe-loop.ts'
import { healthKey } from './world.ts'

export interface StatusInit {
  readonly node: string
  readonly version: string
  readonly driver: string
  readonly nowMs: number
  readonly lanes: readonly LanePlan[]
  readonly devices: ReadonlyMap<number, DeviceState>
  readonly health: ReadonlyMap<string, MeasuredHealth>
  /** Connections, by healthKey(), whose routes are in place. */
  readonly routed: ReadonlySet<string>
  /** Why the last round failed; undefined when it did not. */
  readonly failure: string | undefined
}

export function planStatus(init: StatusInit): Gateway {
  return {
    apiVersion: 'sealane.io/v1alpha1',
    kind: 'Gateway',
    metadata: { name: init.node },
    status: {
      version: init.version,
      lanes: init.lanes.map(({ lane, device, mtu }) => ({ lane, device, mtu, driver: init.driver })),
      connections: init.lanes.flatMap((lane) => lane.peers.map((peer) => connection(init, lane, peer))),
      ...(init.failure === undefined ? {} : { failure: init.failure }),
    },
  }
}

const PROCESS_SILENT = 'the lane carries traffic, but the gateway process at its other end does not answer'

function connection(init: StatusInit, lane: LanePlan, planned: PlannedPeer): ConnectionStatus {
  const peer = init.devices.get(lane.lane)?.peers.find((one) => one.publicKey === planned.publicKey)
  const health = init.health.get(healthKey(lane.lane, planned.cluster))
  const { rttMs, loss } = health?.figures ?? {}
  const handshakeMs = peer?.lastHandshakeMs
  const state = reportedState(init, healthKey(lane.lane, planned.cluster))
  return {
    cluster: planned.cluster,
    lane: lane.lane,
    endpoint: planned.endpoint,
    state,
    message: state === 'up' && health?.kernelOnly === true ? PROCESS_SILENT : message(state, planned, peer),
    ...(peer?.endpoint === undefined ? {} : { usingAddress: peer.endpoint }),
    usingNat: isBehindNat(planned, peer),
    ...(rttMs === undefined ? {} : { rttMs: Math.round(rttMs * 100) / 100 }),
    ...(loss === undefined ? {} : { loss: Math.round(loss * 1000) / 1000 }),
    ...(handshakeMs === undefined
      ? {}
      : { handshakeAgeSeconds: Math.max(0, Math.floor((init.nowMs - handshakeMs) / 1000)) }),
    rxBytes: peer?.rxBytes ?? 0,
    txBytes: peer?.txBytes ?? 0,
  }
}

/** Up is told once traffic can use the connection, not a moment earlier; down is told at once. */
function reportedState(init: StatusInit, key: string): ConnectionStatus['state'] {
  const state = init.health.get(key)?.state ?? 'connecting'
  return state === 'up' && !init.routed.has(key) ? 'connecting' : state
}

function message(state: ConnectionStatus['state'], planned: PlannedPeer, peer: PeerState | undefined): string {
  if (state === 'up') return ''
  const { choice, doubt } = planned
  const shaken = peer?.lastHandshakeMs === undefined ? 'no handshake yet' : 'no answer to probes'
  const more = doubt === undefined ? '' : `; ${doubt}`
  if (choice.how === 'wait') return `${shaken}: ${choice.why}${more}`
  const doing = `${choice.how === 'try' ? 'trying' : 'keeping'} ${choice.address ?? 'its address'}`
  return `${shaken}: ${doing} (${choice.why})${more}`
}

/** The far end is where it has no address itself: where it does not tell about, or where the broker saw it. */
function isBehindNat(planned: PlannedPeer, peer: PeerState | undefined): boolean {
  if (peer?.endpoint === undefined) return false
  const own = planned.candidates.filter(({ kind }) => kind !== 'observed')
  return !own.some((candidate) => `${candidate.address}:${candidate.port}` === peer.endpoint)
}
