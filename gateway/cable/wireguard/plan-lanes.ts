/** Lane devices and their WireGuard peers. Pure. */
import { laneAddress } from '../../../model/addresses/addressing.ts'
import { formatAddress } from '../../../model/addresses/ip.ts'
import { LANE_MARK, laneDevice } from '../../../model/kernel-ids.ts'
import { WIREGUARD_OVERHEAD_IPV4 } from '../../../model/spec-constants.ts'
import type { DeviceConfig, PeerConfig } from '../../../kernel/wireguard/wireguard.ts'
import { type RemotePeer, checkEndpoints } from '../../remotes/check-endpoints.ts'
import type { RemoteCluster } from '../../../model/addresses/remote-clusters.ts'
import { type Refusal, checkClusters } from '../../remotes/check-remotes.ts'
import { isBehindNat, ownAddresses } from '../../remotes/observed-address.ts'
import { isOwnLaneHidden } from '../../reach/plan-candidates.ts'
import { type EndpointChoice, chooseEndpoint } from '../../reach/choose-endpoint.ts'
import { nextLookMs } from '../../remotes/choose-server.ts'
import type { GatewayLaneConfig } from '../../config.ts'
import { laneDoubt } from '../../reach/lane-doubt.ts'
import { type GatewayWorld, type PeerHealthView, healthKey } from '../../world.ts'

export interface PlannedPeer extends RemotePeer {
  readonly choice: EndpointChoice
  /** Why it may be that it never comes up, in words. */
  readonly doubt?: string
}

export interface LanePlan {
  readonly lane: number
  readonly device: string
  readonly mtu: number
  /** address/32 of the device. */
  readonly address: string
  readonly config: DeviceConfig
  /** Those that are sent to. */
  readonly peers: readonly PlannedPeer[]
  /** Called beside them, to be sent to once they have shaken hands (chooseServer()). */
  readonly successors: readonly PlannedPeer[]
}

export interface LanesPlan {
  readonly lanes: readonly LanePlan[]
  readonly clusters: readonly RemoteCluster[]
  readonly refusals: readonly Refusal[]
  /** When a call is due or a candidate's turn ends: plan again then. Milliseconds of the monotonic clock. */
  readonly nextAtMs?: number
}

/** Underlay MTU where no peer's path is known yet. */
const DEFAULT_PATH_MTU = 1500
/** IPv4 needs no more (RFC 791: 576); below this the path is broken, not small. */
const SMALLEST_MTU = 576
/** NAT entries for UDP live 30 s and more (RFC 4787 REQ-5 asks for 120); some keep them for 20. */
const KEEPALIVE_BEHIND_NAT_SECONDS = 10
/** For firewalls that keep state; also lets a device that has nothing to send shake hands again. */
const KEEPALIVE_SECONDS = 25

/** From the world to one plan per lane that this node serves. */
export function planLanes(world: GatewayWorld): LanesPlan {
  const { clusters, refusals } = checkClusters(world)
  const endpoints = checkEndpoints(world, clusters)
  const keepaliveSeconds = isBehindNat(world) ? KEEPALIVE_BEHIND_NAT_SECONDS : KEEPALIVE_SECONDS
  const lanes = [...world.lanes]
    .sort((a, b) => a.lane - b.lane)
    .map((lane) =>
      planLane(
        world,
        lane,
        endpoints.peers.filter((peer) => peer.lane === lane.lane),
        endpoints.successors.filter((peer) => peer.lane === lane.lane),
        keepaliveSeconds,
      ),
    )
  const calls = lanes.flatMap((lane) => [...lane.peers, ...lane.successors])
  const looks = endpoints.successors.map((peer) => nextLookMs(calledSinceMs(world, peer), world.monotonicMs))
  const due = [...calls.flatMap((peer) => peer.choice.nextAtMs ?? []), ...looks]
  return {
    lanes,
    clusters,
    refusals: [...leftOut(world), ...refusals, ...endpoints.refusals],
    ...(due.length === 0 ? {} : { nextAtMs: Math.min(...due) }),
  }
}

function leftOut({ node, ipv6LeftOut }: GatewayWorld): Refusal[] {
  if (ipv6LeftOut === undefined) return []
  const message = 'this kernel has no IPv6, so its lanes carry only IPv4'
  return [{ subject: `Node ${node}`, reason: 'IPv6NotInKernel', message }]
}

function planLane(
  world: GatewayWorld,
  lane: GatewayLaneConfig,
  remotes: readonly RemotePeer[],
  newcomers: readonly RemotePeer[],
  keepaliveSeconds: number,
): LanePlan {
  const states = new Map(world.devices.get(lane.lane)?.peers.map((peer) => [peer.publicKey, peer]))
  const hidden = isOwnLaneHidden(world, lane)
  const ours = ownAddresses(world)
  const planned = (remote: RemotePeer, health: PeerHealthView | undefined): PlannedPeer => {
    const { monotonicMs, rotateMs, callJitter: jitter } = world
    const peer = states.get(remote.publicKey)
    const { candidates, noneCallable, hidden: isRemoteHidden } = remote
    // Whoever cannot be called must call; else the order of ids decides, so that both ends agree.
    const callsFirst = hidden === isRemoteHidden ? world.own.spec.id < remote.cluster : hidden
    const turn = { monotonicMs, rotateMs, jitter, callsFirst, callable: !hidden }
    const called = world.roamed?.get(remote.publicKey)
    // An address that was the other's when it called may have become this node's since.
    const roamed = called !== undefined && ours.has(called.address.replace(/:\d+$/, '')) ? undefined : called
    const handshakeMs = world.handshakes.get(remote.publicKey)
    const choice = chooseEndpoint({ ...turn, candidates, noneCallable, roamed, peer, handshakeMs, health })
    const doubt = laneDoubt({ world, lane, remote, hidden })
    return { ...remote, choice, ...(doubt === undefined ? {} : { doubt }) }
  }
  const peers = remotes.map((remote) => planned(remote, world.health.get(healthKey(remote.lane, remote.cluster))))
  const successors = newcomers.map((remote) =>
    planned(remote, { state: 'connecting', sinceMs: calledSinceMs(world, remote) }),
  )
  const configs = [...peers, ...successors].map(({ publicKey, allowedIps, choice }): PeerConfig => ({
    publicKey,
    ...(choice.how === 'try' && choice.address !== undefined ? { endpoint: choice.address } : {}),
    allowedIps,
    keepaliveSeconds,
  }))
  return {
    lane: lane.lane,
    device: laneDevice(lane.lane),
    mtu: planMtu([...peers, ...successors], world.pathMtu),
    address: `${formatAddress(laneAddress(world.own.spec.index, lane.lane))}/32`,
    config: { listenPort: lane.port, mark: LANE_MARK, peers: configs },
    peers,
    successors,
  }
}

function calledSinceMs({ successorsSince, monotonicMs }: GatewayWorld, { publicKey }: RemotePeer): number {
  return successorsSince?.get(publicKey) ?? monotonicMs
}

/**
 * MTU of a lane device: the smallest path MTU to an address in use on it, less what WireGuard adds over IPv4. One
 * device serves all peers of the lane, so the narrowest path decides for all. An address that is only being tried
 * decides while there is none in use: candidates take turns every second, and the lanes of others shall not follow.
 */
export function planMtu(peers: readonly PlannedPeer[], pathMtu: ReadonlyMap<string, number>): number {
  const pathMtus = (choices: readonly EndpointChoice[]): number[] =>
    choices.flatMap((choice) => pathMtu.get(choice.address?.split(':')[0] ?? '') ?? [])
  const choices = peers.map((peer) => peer.choice)
  const used = pathMtus(choices.filter((choice) => choice.how === 'keep'))
  const known = used.length > 0 ? used : pathMtus(choices)
  return Math.max(
    SMALLEST_MTU,
    Math.min(...(known.length === 0 ? [DEFAULT_PATH_MTU] : known)) - WIREGUARD_OVERHEAD_IPV4,
  )
}
