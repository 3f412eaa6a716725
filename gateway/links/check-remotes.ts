/** What other clusters claim with their Clusters and Endpoints, checked before it reaches the lanes. Pure. */
import {
  type Prefix,
  type RemoteCluster,
  checkRemoteClusters,
  classifyAddress,
  containsAddress,
  formatAddress,
  formatPrefix,
  machineNeeds,
  parseAddress,
  reservedPrefixes,
  underlayAddresses,
} from '../../model/addresses/addresses.ts'
import {
  CAPABILITY_ALL_PAIRS,
  CAPABILITY_SIZED_PROBES,
  MAX_LANE,
  isLaneNumber,
  laneClaims,
  laneServerKey,
} from '../../model/lanes/lanes.ts'
import { type Endpoint, type EndpointCandidate, endpointName } from '../../model/model.ts'
import { type Problem, problem } from '../../model/reasons/reasons.ts'
import { type CableRules, type FarEnd, type LaneState, type LinkState, linkKey } from '../cable/cable.ts'
import { isHidden, linkPort, observedValidator, ownAddresses } from '../reach/reach.ts'
import { type GatewayLaneConfig, type GatewayWorld, healthKey } from '../world/world.ts'
import { type LaneServer, chooseServer } from './choose-server.ts'

/** One remote gateway that a link may lead to. */
export interface RemoteLink extends FarEnd {
  readonly cluster: string
  /** Of the cluster. */
  readonly index: number
  readonly node: string
  /** The far end's address inside the tunnel, which answers the probes. */
  readonly laneAddress: string
  /** Of the cluster. */
  readonly prefixes: readonly string[]
  /** With the ports that are for this node's lane (linkPort()). */
  readonly candidates: readonly EndpointCandidate[]
  /**
   * As far as is known it cannot be called from outside: of its candidates, only those count that nobody contradicts.
   */
  readonly hidden: boolean
  /** It announces addresses, but none of them can be called from here. */
  readonly noneCallable: boolean
  /** The identity that it has announced, also once it has taken it. Absent: none, or one that is somebody else's. */
  readonly announced?: string
  /** It answers padded probes. */
  readonly answersSizes: boolean
}

const MAX_CANDIDATES = 8

export interface CheckedEndpoints {
  /** Whom this node sends to, sorted by remote lane and cluster: one for each (chooseServer()). */
  readonly links: readonly RemoteLink[]
  /** Called beside one of these until they have shaken hands, in the same order. Nothing is sent to them yet. */
  readonly successors: readonly RemoteLink[]
  readonly refusals: readonly Refusal[]
}

/**
 * For the lane that this node serves. One per identity (the first by name): it names one far end of a device. A gateway
 * of a release with one device has links with its own number alone; there is no use in calling it from another.
 */
export function checkEndpoints(
  world: GatewayWorld,
  clusters: readonly RemoteCluster[],
  rules: CableRules,
): CheckedEndpoints {
  const [own] = world.lanes
  if (own === undefined) return { links: [], successors: [], refusals: [] }
  const byId = new Map(clusters.map((cluster) => [cluster.id, cluster]))
  const reserved = reservedPrefixes(world.own.spec).map((r) => r.prefix)
  const ours = ownAddresses(world)
  const ownPlaces = placesOfLane(world, own)
  const counts = observedValidator(world)
  const links: RemoteLink[] = []
  const successors: RemoteLink[] = []
  const refusals: Refusal[] = []
  // Endpoints of a refused cluster are covered by its refusal; an unknown cluster's Cluster object is still to come.
  const claims = world.endpoints.filter((one) => byId.has(one.spec.cluster) && canLink(one, own.lane))
  const problemOf = (endpoint: Endpoint): Problem | undefined => {
    const malformed = rules.endpointProblem(endpoint)
    return (
      nameProblem(endpoint) ??
      numberProblem(endpoint) ??
      (malformed === undefined ? undefined : problem('InvalidValue', malformed))
    )
  }
  const servers = serversOf(
    world,
    claims.filter((endpoint) => problemOf(endpoint) === undefined),
    rules,
  )
  const ownOnes = ownIdentities(world)
  const owners = new Map(ownOnes.map((identity) => [identity, 'this node']))
  const announced = announcedIdentities(claims, { rules, own: ownOnes })
  refusals.push(...announced.refusals)
  for (const endpoint of [...claims].sort(byName)) {
    const { spec } = endpoint
    const cluster = byId.get(spec.cluster)
    const server = servers.get(laneServerKey(endpoint))
    if (cluster === undefined) continue
    const stated = rules.identityOf(endpoint)
    const owner = owners.get(stated)
    const taken = owner === undefined ? undefined : rules.identityTaken(owner)
    // The gateway that serves is found before these are compared: another cluster must not be able to come later with
    // our key.
    const found = problemOf(endpoint) ?? laneProblem(endpoint, server) ?? taken
    if (found !== undefined) {
      refusals.push({ subject: `Endpoint ${endpoint.metadata.name}`, ...found })
      continue
    }
    owners.set(stated, `Endpoint ${endpoint.metadata.name}`)
    const inside = [...reserved, ...ownLanePrefixes(world, cluster)]
    const link = toLink(endpoint, { cluster, rules, own }, (candidate) => {
      // Networks behind different NATs may have the same addresses: who called its own would call nobody.
      const isOwn = ours.has(candidate.address) || ownPlaces.has(placeOf(candidate))
      if (isOwn || !isCallable(candidate, inside)) return 'no'
      return candidate.kind !== 'observed' || counts(candidate.address, cluster.id) ? 'yes' : 'last'
    })
    if (server?.successor === endpoint) {
      successors.push(link)
      continue
    }
    const { serving, called } = chooseIdentity(world, link, announced.identities.get(endpoint.metadata.name))
    links.push(serving)
    if (called !== undefined && server?.successor === undefined) successors.push(called)
  }
  const linked = new Set([...links, ...successors].map(({ cluster }) => cluster))
  const others = world.endpoints.filter(({ spec }) => byId.has(spec.cluster) && !linked.has(spec.cluster))
  refusals.push(...otherLanesOnly(others, own.lane))
  return { links: links.sort(byLaneAndCluster), successors: successors.sort(byLaneAndCluster), refusals }
}

/** Whether a gateway with this number can have a link with it at all. */
export function canLink({ spec }: Endpoint, ownLane: number): boolean {
  return spec.lane === ownLane || spec.capabilities.includes(CAPABILITY_ALL_PAIRS)
}

/** Whoever looks for the missing links finds here why there are none: once for each cluster, however many it states. */
function otherLanesOnly(endpoints: readonly Endpoint[], ownLane: number): Refusal[] {
  const refused = endpoints.filter((endpoint) => !canLink(endpoint, ownLane) && isLaneNumber(endpoint.spec.lane))
  const clusters = [...new Set(refused.map(({ spec }) => spec.cluster))].sort()
  return clusters.map((cluster) => {
    const stated = refused.filter(({ spec }) => spec.cluster === cluster).map(({ spec }) => spec.lane)
    const lanes = [...new Set(stated)].sort((a, b) => a - b).join(', ')
    return {
      subject: `Cluster ${cluster}`,
      reason: 'OtherLaneOnly',
      message: `its release links gateways of equal lane numbers alone: it has ${lanes}, and this node serves ${ownLane}`,
    }
  })
}

/** Where others call this node's devices. Behind one NAT a neighbour may have the same address, with another port. */
function placesOfLane({ endpoints }: GatewayWorld, own: GatewayLaneConfig): ReadonlySet<string> {
  const { publicAddress: address, port: stated, lane } = own
  if (address === undefined) return new Set()
  const numbers = [lane, ...endpoints.map(({ spec }) => spec.lane).filter(isLaneNumber)]
  return new Set(numbers.map((from) => placeOf({ address, port: linkPort({ stated, of: lane, from }) })))
}

function placeOf({ address, port }: { readonly address: string; readonly port: number }): string {
  return `${address}:${port}`
}

function serversOf(
  { laneStates, health: states, monotonicMs }: GatewayWorld,
  claims: readonly Endpoint[],
  rules: CableRules,
): ReadonlyMap<string, LaneServer> {
  const servers = [...laneClaims(claims)].map(([key, claimants]) => {
    const { lane, cluster } = claimants[0].spec
    const health = states.get(healthKey(lane, cluster))
    const downMs = health?.state === 'down' ? monotonicMs - health.sinceMs : 0
    const linkOf = (endpoint: Endpoint): LinkState | undefined =>
      linkAsAny(laneStates.get(lane), farEnds(endpoint, rules))
    return [key, chooseServer(claimants, { linkOf, downMs, monotonicMs })] as const
  })
  return new Map(servers)
}

function byLaneAndCluster(a: RemoteLink, b: RemoteLink): number {
  return a.remoteLane - b.remoteLane || (a.cluster < b.cluster ? -1 : 1)
}

/**
 * Where a gateway of the cluster cannot be: under the global addresses of its own pods. But a cluster that is not
 * translated may have pods with addresses of the network that its nodes are in; then its gateway is among them. What
 * a cable sends does not go into lanes (LANE_MARK), so ranges of other clusters do not
 * matter: else one that states the range of another's gateway would take that gateway from all of us.
 */
function ownLanePrefixes(world: GatewayWorld, cluster: RemoteCluster): readonly Prefix[] {
  const spec = world.clusters.find((one) => one.metadata.name === cluster.id)?.spec
  const flat = spec !== undefined && spec.globalCIDRs.length === 0
  return flat ? [] : cluster.prefixes
}

function nameProblem({ spec, metadata }: Endpoint): Problem | undefined {
  const name = endpointName(spec.cluster, spec.node, spec.lane)
  return metadata.name === name
    ? undefined
    : problem('InvalidValue', `its name does not follow from its spec: expected ${name}`)
}

function numberProblem({ spec: { lane } }: Endpoint): Problem | undefined {
  return isLaneNumber(lane) ? undefined : problem('InvalidValue', `lane ${lane}: expected 0 to ${MAX_LANE}`)
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

/** The far end that an Endpoint describes. */
export function farEnd(endpoint: Endpoint, rules: CableRules): FarEnd {
  return { remoteLane: endpoint.spec.lane, endpoint: endpoint.metadata.name, identity: rules.identityOf(endpoint) }
}

/** The same, and as which it says that it will be known. */
export function farEnds(endpoint: Endpoint, rules: CableRules): readonly FarEnd[] {
  const present = farEnd(endpoint, rules)
  const next = rules.nextIdentityOf(endpoint)
  return next === undefined ? [present] : [present, { ...present, identity: next }]
}

interface LinkParts {
  readonly cluster: RemoteCluster
  readonly rules: CableRules
  readonly own: GatewayLaneConfig
}

function toLink(
  endpoint: Endpoint,
  { cluster, rules, own }: LinkParts,
  mayCall: (candidate: EndpointCandidate) => 'yes' | 'last' | 'no',
): RemoteLink {
  const { spec } = endpoint
  const ports = { of: spec.lane, from: own.lane }
  const all = spec.candidates.map((one) => ({ ...one, port: linkPort({ stated: one.port, ...ports }) }))
  const sorted = (which: 'yes' | 'last'): EndpointCandidate[] => all.filter((one) => mayCall(one) === which)
  const counting = sorted('yes').slice(0, MAX_CANDIDATES)
  const candidates = [...counting, ...sorted('last')].slice(0, MAX_CANDIDATES)
  return {
    ...farEnd(endpoint, rules),
    cluster: spec.cluster,
    index: cluster.index,
    node: spec.node,
    laneAddress: formatAddress(rules.probeAddress(cluster.index, spec.lane)),
    prefixes: cluster.prefixes.map(formatPrefix),
    candidates,
    hidden: isHidden(counting),
    noneCallable: candidates.length === 0 && spec.candidates.length > 0,
    answersSizes: spec.capabilities.includes(CAPABILITY_SIZED_PROBES),
  }
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

// Clusters: what model/addresses/remote-clusters.ts says of them, with this node's own view. Pure.

/** An object that is not used, and why. */
export interface Refusal extends Problem {
  /** `Cluster paris`, `Endpoint paris.gw-lane0`. */
  readonly subject: string
}

/** Remote clusters that may be routed, by id. */
export function checkClusters(world: GatewayWorld): { clusters: readonly RemoteCluster[]; refusals: Refusal[] } {
  const { own, clusters: all, nodes } = world
  const underlay = underlayAddresses(
    nodes,
    world.addresses.map((entry) => entry.address),
  )
  const needed = machineNeeds({
    nodes: underlayAddresses(nodes),
    interfaces: world.addresses.map((entry) => entry.address),
    nextHops: world.machine?.nextHops ?? [],
    nameServers: world.machine?.nameServers ?? [],
  })
  const { clusters, refused } = checkRemoteClusters({ own, clusters: all, underlay, needed })
  return { clusters, refusals: refused.map(({ name, ...why }) => ({ subject: `Cluster ${name}`, ...why })) }
}

// Far ends that are about to have another identity, or just took one: as which one a link leads to them. What the device
// has counts, whatever a process remembers: a restart changes nothing. Pure.

/** Of this node: what its devices have, and what it has announced. */
function ownIdentities({ laneStates, nextIdentity }: GatewayWorld): readonly string[] {
  const present = [...laneStates.values()].map(({ identity }) => identity)
  return [...new Set([...present, ...(nextIdentity === undefined ? [] : [nextIdentity])])]
}

interface AnnouncedIdentities {
  /** By the names of the Endpoints. */
  readonly identities: ReadonlyMap<string, string>
  readonly refusals: readonly Refusal[]
}

/**
 * What Endpoints announce, but what anybody has already, or has announced with a name that comes first. What is refused
 * here costs its owner nothing but the announcement.
 */
function announcedIdentities(
  endpoints: readonly Endpoint[],
  { rules, own }: { readonly rules: CableRules; readonly own: readonly string[] },
): AnnouncedIdentities {
  const sorted = [...endpoints].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
  const owners = new Map(sorted.map((one) => [rules.identityOf(one), `Endpoint ${one.metadata.name}`]))
  for (const identity of own) owners.set(identity, 'this node')
  const identities = new Map<string, string>()
  const refusals: Refusal[] = []
  for (const endpoint of sorted) {
    const next = rules.nextIdentityOf(endpoint)
    if (next === undefined) continue
    const { name } = endpoint.metadata
    const owner = owners.get(next)
    if (owner === undefined) identities.set(name, next)
    else refusals.push({ subject: `Endpoint ${name}`, ...rules.identityTaken(owner, 'next') })
    owners.set(next, owner ?? `Endpoint ${name}`)
  }
  return { identities, refusals }
}

/** The state of a link, under whichever identity it carries, else under the first that is known. */
export function linkAsAny(lane: LaneState | undefined, ends: readonly FarEnd[]): LinkState | undefined {
  const states = ends.flatMap((end) => lane?.links.get(linkKey(end)) ?? [])
  return states.find(({ carries }) => carries) ?? states[0]
}

interface ChosenIdentity<L> {
  readonly serving: L
  /** The same far end under its other identity, called beside it. */
  readonly called?: L
}

/**
 * A far end is known by its present identity until this node has followed it. A link that does not answer may be one
 * whose far end has changed unheard: then the other identity is called beside it, and takes over once it has shaken
 * hands.
 */
function chooseIdentity<L extends FarEnd & { readonly cluster: string; readonly announced?: string }>(
  { laneStates, health }: Pick<GatewayWorld, 'laneStates' | 'health'>,
  link: L,
  announced: string | undefined,
): ChosenIdentity<L> {
  if (announced === undefined) return { serving: link }
  const present = { ...link, announced }
  const next = { ...present, identity: announced }
  const stateOf = (end: FarEnd): LinkState | undefined => laneStates.get(link.remoteLane)?.links.get(linkKey(end))
  const [serving, other] = stateOf(next)?.carries === true ? [next, present] : [present, next]
  const view = health.get(healthKey(link.remoteLane, link.cluster))
  if (view?.state === 'up' && view.doubted !== true) return { serving }
  return stateOf(other)?.handshakeMs === undefined ? { serving, called: other } : { serving: other }
}
