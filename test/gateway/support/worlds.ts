/** Worlds as one-liners for tests. */
import { parseAddressPort } from '../../../model/addresses/address-port.ts'
import { type FarEnd, type LaneState, linkKey } from '../../../gateway/cable/cable-driver.ts'
import { wireguardRules } from '../../../gateway/cable/wireguard/plan-device.ts'
import { laneStateOf } from '../../../gateway/cable/wireguard/wireguard-cable.ts'
import { farEnd, farEnds } from '../../../gateway/links/check-remotes.ts'
import type { DeviceState, PeerState } from '../../../kernel/wireguard/wireguard-device.ts'
import type { Cluster, Endpoint, EndpointCandidate, Node } from '../../../model/objects.ts'
import type { GatewayWorld } from '../../../gateway/world/gateway-world.ts'
import { clusterObject, endpointObject } from '../../support/objects/cluster-objects.ts'
import { internalIps, nodeObject } from '../../support/objects/node-objects.ts'

/** The two clocks: milliseconds since 1970, and milliseconds since an arbitrary start. */
export const NOW = Date.parse('2026-11-20T12:00:00Z')
export const UPTIME = 7_200_000

/** A public key that starts with readable letters. */
export function key(name: string): string {
  return Buffer.from(name.padEnd(32, '.').slice(0, 32)).toString('base64')
}

export function cluster(
  id: string,
  index: number,
  podCIDR: string | readonly string[],
  globalCIDR?: string | readonly string[],
): Cluster {
  const list = (texts: string | readonly string[] | undefined): readonly string[] =>
    texts === undefined ? [] : typeof texts === 'string' ? [texts] : texts
  const ranges = { podCIDRs: list(podCIDR), serviceCIDRs: ['10.43.0.0/16'], globalCIDRs: list(globalCIDR) }
  return clusterObject({ id, index, ...ranges })
}

/** The two clusters of all tests: IPv4 overlaps and is translated, IPv6 is not translated. */
export const DUAL_MILANO = cluster('milano', 1, ['10.42.0.0/16', 'fd42:1::/48'], ['244.0.0.0/16', 'fd42:1::/48'])
export const DUAL_PARIS = cluster('paris', 2, ['10.42.0.0/16', 'fd42:2::/48'], ['244.1.0.0/16', 'fd42:2::/48'])

/** Candidates are written as `public 192.0.2.20:4500`. */
export function endpoint(
  clusterId: string,
  node: string,
  lane: number,
  candidates: readonly string[],
  publicKey = key(`${clusterId}${lane}`),
): Endpoint {
  const reported = { publicKey, candidates: candidates.map(candidate), capabilities: ['wireguard', 'all-pairs'] }
  return endpointObject({ cluster: clusterId, node, lane, ...reported })
}

function candidate(text: string): EndpointCandidate {
  const [kind = '', place = ''] = text.split(' ')
  const [address = '', port = ''] = place.split(':')
  return { kind: kind as EndpointCandidate['kind'], address, port: Number(port) }
}

export function node(name: string, internalIp: string, ...podCIDRs: readonly string[]): Node {
  const [podCIDR] = podCIDRs
  const spec = podCIDR === undefined ? {} : { spec: { podCIDR, podCIDRs } }
  return nodeObject(name, { ...spec, status: internalIps(internalIp) })
}

/** The state of a peer, with the endpoint as text. */
export function peerState(
  publicKey: string,
  { endpoint, ...facts }: Partial<Omit<PeerState, 'endpoint'>> & { readonly endpoint?: string } = {},
): PeerState {
  const at = endpoint === undefined ? {} : { endpoint: parseAddressPort(endpoint) }
  return { publicKey, allowedIps: [], keepaliveSeconds: 25, rxBytes: 0, txBytes: 0, ...at, ...facts }
}

/** The time of each peer's handshake by the monotonic clock, in a world whose wall clock never jumped. */
function handshakesOf(devices: Iterable<{ readonly peers: readonly PeerState[] }>): Map<string, number> {
  return new Map(
    [...devices].flatMap(({ peers }) =>
      peers.flatMap(({ publicKey, lastHandshakeMs }) =>
        lastHandshakeMs === undefined ? [] : [[publicKey, UPTIME - (NOW - lastHandshakeMs)] as const],
      ),
    ),
  )
}

/** The far end of an Endpoint over WireGuard. */
export function farEndOf(endpoint: Endpoint): FarEnd {
  return farEnd(endpoint, wireguardRules)
}

/** The key of the Endpoint's link in maps. */
export function keyOf(endpoint: Endpoint): string {
  return linkKey(farEndOf(endpoint))
}

/** A WireGuard device as a lane of this node, with the links to these Endpoints. */
export function laneState(device: DeviceState, endpoints: readonly Endpoint[]): LaneState {
  const ends = endpoints.flatMap((one) => farEnds(one, wireguardRules))
  return laneStateOf(device, ends, handshakesOf([device]))
}

/** `devices` stands for what `laneStates` is in the real world. */
export type WorldFacts = Partial<GatewayWorld> & { readonly devices?: ReadonlyMap<number, DeviceState> }

/** Milano with one lane on node gw, and the given facts. */
export function world({ devices = new Map<number, DeviceState>(), ...facts }: WorldFacts = {}): GatewayWorld {
  const own = facts.own ?? cluster('milano', 1, '10.42.0.0/16', '244.0.0.0/16')
  return {
    monotonicMs: UPTIME,
    callJitter: 0,
    node: 'gw',
    own,
    clusters: [own],
    endpoints: [],
    nodes: [node('gw', '192.0.2.10', '10.42.0.0/24'), node('worker', '192.0.2.11', '10.42.1.0/24')],
    routeAgents: [],
    lanes: [{ lane: 0, port: 4500, publicAddress: '192.0.2.10' }],
    rotateMs: 5000,
    addresses: [
      { device: 'lo', address: '127.0.0.1/8' },
      { device: 'eth0', address: '192.0.2.10/24' },
      { device: 'cni0', address: '10.42.0.1/24' },
    ],
    laneStates: new Map([...devices].map(([lane, device]) => [lane, laneState(device, facts.endpoints ?? [])])),
    laneDevices: [],
    pathMtu: new Map(),
    pathSource: new Map(),
    health: new Map(),
    ...facts,
  }
}
