/** Endpoints that other clusters claim, checked like their Clusters (check-remotes.ts). Pure. */
import {
  type Prefix,
  classifyAddress,
  containsAddress,
  formatAddress,
  formatPrefix,
  parseAddress,
} from '../../model/addresses/ip.ts'
import { type Endpoint, type EndpointCandidate, endpointName } from '../../model/objects.ts'
import { laneClaims, laneServerKey } from '../../model/lanes/lane-servers.ts'
import { type RemoteCluster, reservedPrefixes } from '../../model/addresses/remote-clusters.ts'
import { type Refusal, lanePrefix } from './check-remotes.ts'
import { type LaneServer, chooseServer } from './choose-server.ts'
import { isHidden } from '../reach/plan-candidates.ts'
import { observedJudge, ownAddresses } from './observed-address.ts'
import { type GatewayWorld, healthKey } from '../world.ts'
import { type Problem, problem } from '../../model/reasons/problem.ts'

/** One remote gateway on one lane that may become a WireGuard peer. */
export interface RemotePeer {
  readonly cluster: string
  readonly node: string
  readonly lane: number
  /** metadata.name of its Endpoint. */
  readonly endpoint: string
  readonly publicKey: string
  /** The far end's address inside the tunnel, which answers the probes. */
  readonly laneAddress: string
  /** The cluster's prefixes and the lane address, as WireGuard takes them. */
  readonly allowedIps: readonly string[]
  readonly prefixes: readonly string[]
  readonly candidates: readonly EndpointCandidate[]
  /** As far as is known it cannot be called from outside: of its candidates, only those count that nobody contradicts. */
  readonly hidden: boolean
  /** It tells addresses, but none of them can be called from here. */
  readonly noneCallable: boolean
}

const MAX_CANDIDATES = 8

export interface CheckedEndpoints {
  /** Whom this node sends to, sorted by lane and cluster: one per lane and cluster (chooseServer()). */
  readonly peers: readonly RemotePeer[]
  /** Called beside one of these until they have shaken hands, in the same order. They have no prefixes yet. */
  readonly successors: readonly RemotePeer[]
  readonly refusals: readonly Refusal[]
}

/** For the lanes that this node serves. One per key (the first by name): a key names one peer of a device. */
export function checkEndpoints(world: GatewayWorld, clusters: readonly RemoteCluster[]): CheckedEndpoints {
  const lanes = new Set(world.lanes.map((lane) => lane.lane))
  const byId = new Map(clusters.map((cluster) => [cluster.id, cluster]))
  const reserved = reservedPrefixes(world.own.spec).map((r) => r.prefix)
  const ours = ownAddresses(world)
  const ownPlaces = placesOfLanes(world)
  const counts = observedJudge(world)
  const peers: RemotePeer[] = []
  const successors: RemotePeer[] = []
  const refusals: Refusal[] = []
  // Endpoints of a refused cluster are covered by its refusal; an unknown cluster's Cluster object is still to come.
  const claims = world.endpoints.filter(({ spec }) => byId.has(spec.cluster) && lanes.has(spec.lane))
  const servers = serversOf(
    world,
    claims.filter((endpoint) => endpointProblem(endpoint) === undefined),
  )
  const keys = new Map([...world.devices.values()].map((device) => [device.publicKey, 'this node']))
  for (const endpoint of [...claims].sort(byName)) {
    const { spec } = endpoint
    const cluster = byId.get(spec.cluster)
    const server = servers.get(laneServerKey(endpoint))
    if (cluster === undefined) continue
    // Whoever serves is found before keys are compared: another cluster must not be able to come later with our key.
    const found = endpointProblem(endpoint) ?? laneProblem(endpoint, server) ?? keyProblem(spec.publicKey, keys)
    if (found !== undefined) {
      refusals.push({ subject: `Endpoint ${endpoint.metadata.name}`, ...found })
      continue
    }
    keys.set(spec.publicKey, `Endpoint ${endpoint.metadata.name}`)
    const inside = [...reserved, ...ownLanePrefixes(world, cluster)]
    const peer = toPeer(endpoint, cluster, (candidate) => {
      // Networks behind different NATs may have the same addresses: who called its own would call nobody.
      const isOwn = ours.has(candidate.address) || ownPlaces.has(placeOf(candidate))
      if (isOwn || !isCallable(candidate, inside)) return 'no'
      return candidate.kind !== 'observed' || counts(candidate.address, cluster.id) ? 'yes' : 'last'
    })
    if (server?.successor === endpoint) successors.push({ ...peer, allowedIps: [] })
    else peers.push(peer)
  }
  return { peers: peers.sort(byLaneAndCluster), successors: successors.sort(byLaneAndCluster), refusals }
}

/** Where others call this node's lanes. Behind one NAT a neighbour may have the same address, with another port. */
function placesOfLanes({ lanes }: GatewayWorld): ReadonlySet<string> {
  const told = lanes.flatMap(({ publicAddress: address, port }) => (address === undefined ? [] : [{ address, port }]))
  return new Set(told.map(placeOf))
}

function placeOf({ address, port }: { readonly address: string; readonly port: number }): string {
  return `${address}:${port}`
}

function serversOf(world: GatewayWorld, claims: readonly Endpoint[]): ReadonlyMap<string, LaneServer> {
  const servers = [...laneClaims(claims)].map(([key, claimants]) => {
    const { lane, cluster } = claimants[0].spec
    const health = world.health.get(healthKey(lane, cluster))
    const downMs = health?.state === 'down' ? world.monotonicMs - health.sinceMs : 0
    const handshakeAgeMs = (publicKey: string): number =>
      world.monotonicMs - (world.handshakes.get(publicKey) ?? -Infinity)
    const facts = { device: world.devices.get(lane), downMs, handshakeAgeMs }
    return [key, chooseServer(claimants, facts)] as const
  })
  return new Map(servers)
}

function byLaneAndCluster(a: RemotePeer, b: RemotePeer): number {
  return a.lane - b.lane || (a.cluster < b.cluster ? -1 : 1)
}

/**
 * Where a gateway of the cluster cannot be: under the global addresses of its own pods. But a cluster that is not
 * translated may have pods with addresses of the network that its nodes are in; then its gateway is among them. What
 * WireGuard sends does not go into lanes (LANE_MARK), so ranges of other clusters stand in nobody's way: else one that
 * states the range of another's gateway would take that from all of us.
 */
function ownLanePrefixes(world: GatewayWorld, cluster: RemoteCluster): readonly Prefix[] {
  const spec = world.clusters.find((one) => one.metadata.name === cluster.id)?.spec
  const flat = spec !== undefined && spec.globalCIDRs.length === 0
  return flat ? [] : cluster.prefixes
}

function endpointProblem(endpoint: Endpoint): Problem | undefined {
  const { spec, metadata } = endpoint
  const name = endpointName(spec.cluster, spec.node, spec.lane)
  if (metadata.name !== name) return problem('InvalidValue', `its name does not follow from its spec: expected ${name}`)
  if (!isPublicKey(spec.publicKey))
    return problem(
      'InvalidValue',
      `publicKey ${JSON.stringify(spec.publicKey.slice(0, 60))}: expected 32 bytes in base64`,
    )
  return undefined
}

function keyProblem(publicKey: string, keys: ReadonlyMap<string, string>): Problem | undefined {
  const owner = keys.get(publicKey)
  return owner === undefined ? undefined : problem('PublicKeyTaken', `publicKey is that of ${owner}`)
}

function laneProblem(endpoint: Endpoint, serving: LaneServer | undefined): Problem | undefined {
  if (serving === undefined || serving.server === endpoint || serving.successor === endpoint) return undefined
  const { lane, cluster } = endpoint.spec
  const { node } = serving.server.spec
  return problem(
    'LaneServedByOther',
    `lane ${lane} of ${cluster} is served by node ${node}, which came later or is the first by name`,
  )
}

function byName(a: Endpoint, b: Endpoint): number {
  return a.metadata.name < b.metadata.name ? -1 : 1
}

function toPeer(
  endpoint: Endpoint,
  cluster: RemoteCluster,
  mayCall: (candidate: EndpointCandidate) => 'yes' | 'last' | 'no',
): RemotePeer {
  const { spec } = endpoint
  const sorted = (which: 'yes' | 'last'): EndpointCandidate[] => spec.candidates.filter((one) => mayCall(one) === which)
  const counting = sorted('yes').slice(0, MAX_CANDIDATES)
  const candidates = [...counting, ...sorted('last')].slice(0, MAX_CANDIDATES)
  const lanePrefixText = formatPrefix(lanePrefix(cluster.index, spec.lane))
  const prefixes = cluster.prefixes.map(formatPrefix)
  return {
    cluster: spec.cluster,
    node: spec.node,
    lane: spec.lane,
    endpoint: endpoint.metadata.name,
    publicKey: spec.publicKey,
    laneAddress: lanePrefixText.replace('/32', ''),
    allowedIps: [...prefixes, lanePrefixText],
    prefixes,
    candidates,
    hidden: isHidden(counting),
    noneCallable: candidates.length === 0 && spec.candidates.length > 0,
  }
}

/** 32 bytes in canonical base64: exactly what `wg` prints. */
export function isPublicKey(text: string): boolean {
  return /^[A-Za-z0-9+/]{43}=$/.test(text) && Buffer.from(text, 'base64').toString('base64') === text
}

/** IPv4, an address that a packet can be sent to outside the lanes, a real port. */
function isCallable(candidate: EndpointCandidate, inside: readonly Prefix[]): boolean {
  try {
    const address = parseAddress(candidate.address)
    return (
      address.family === 4 &&
      classifyAddress(address) === 'usable' &&
      formatAddress(address) === candidate.address &&
      !inside.some((prefix) => containsAddress(prefix, address)) &&
      Number.isInteger(candidate.port) &&
      candidate.port > 0 &&
      candidate.port <= 0xffff
    )
  } catch {
    return false
  }
}
