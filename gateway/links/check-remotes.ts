/** Checks what other clusters claim in their Clusters and Endpoints before the lanes use it. Pure. */
import {
  type Prefix,
  type RemoteCluster,
  UNGRANTED_SPACE,
  checkRemoteClusters,
  classifyAddress,
  containsAddress,
  formatAddress,
  formatPrefix,
  machineRequiredRanges,
  parseAddress,
  reservedPrefixes,
  underlayAddresses,
} from '../../model/addresses/addresses.ts'
import {
  CAPABILITY_ALL_PAIRS,
  CAPABILITY_PORT_MAPPED,
  CAPABILITY_RELAY,
  CAPABILITY_SIZED_PROBES,
  MAX_LANE,
  type RelayCosts,
  decodeRelayCosts,
  isHidden,
  isLaneNumber,
  laneClaims,
  laneServerKey,
  statesRelayCosts,
} from '../../model/lanes/lanes.ts'
import { ANNOTATION_VIA, type Endpoint, type EndpointCandidate, endpointName } from '../../model/model.ts'
import { type Problem, problem } from '../../model/reasons/reasons.ts'
import { endpointVia } from '../../model/schemas/schemas.ts'
import { type CableRules, type FarEnd, type LaneState, type LinkState, linkKey } from '../cable/cable.ts'
import { linkPort, observedValidator, ownAddresses, planCandidates } from '../reach/reach.ts'
import { type GatewayLaneConfig, type GatewayWorld, healthKey } from '../world/world.ts'
import { type LaneServer, chooseServer } from './choose-server.ts'

/** One remote gateway to which a link may lead. */
export interface RemoteLink extends FarEnd {
  readonly cluster: string
  /** Index of the cluster. */
  readonly index: number
  readonly node: string
  /** The far end's address inside the tunnel, which answers the probes. */
  readonly laneAddress: string
  /** Prefixes of the cluster. */
  readonly prefixes: readonly string[]
  /** Candidates with the ports for this node's lane (linkPort()). */
  readonly candidates: readonly EndpointCandidate[]
  /** It cannot be called from outside, as far as is known. Only candidates that nothing contradicts count. */
  readonly hidden: boolean
  /**
   * It counts itself as one that cannot be called, as far as its Endpoint shows: whatever it states counts, also what
   * cannot be called from here.
   */
  readonly countsItselfHidden: boolean
  /** It announces addresses, but none of them can be called from here. */
  readonly noneCallable: boolean
  /** The identity that it has announced, even after it has taken it. Absent: none, or one that another far end has. */
  readonly announced?: string
  /** It answers padded probes. */
  readonly answersSizes: boolean
  /** It offers to relay. */
  readonly relays?: true
  /** Members whose relays alone may carry the link, by the topology. It has no candidates then. Absent: any way. */
  readonly via?: readonly string[]
  /** A router leads calls to it. */
  readonly portMapped?: true
  /** It states public addresses alone, and none that a NAT may have. */
  readonly isPublic?: true
  /** What it states of relays. Absent: nothing. */
  readonly relayCosts?: RelayCosts
}

const MAX_CANDIDATES = 8

export interface CheckedEndpoints {
  /** The links that carry traffic, sorted by remote lane and cluster: one for each (chooseServer()). */
  readonly links: readonly RemoteLink[]
  /**
   * Gateways that are called beside these until they have completed a handshake, in the same order. They receive no
   * traffic yet.
   */
  readonly successors: readonly RemoteLink[]
  readonly refusals: readonly Refusal[]
}

/**
 * Checks the Endpoints for the lane that this node serves. Each identity may occur once (the first Endpoint by name
 * wins), because it names one far end of a device. A gateway of a release with a single device has links only with
 * gateways of its own number, so other gateways do not call it.
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
  // The refusal of a cluster covers its Endpoints. For an unknown cluster, the Cluster object has not arrived yet.
  const claims = world.endpoints.filter((one) => byId.has(one.spec.cluster) && canLink(one, own.lane))
  const problemOf = (endpoint: Endpoint): Problem | undefined => {
    const malformed = rules.endpointProblem(endpoint)
    return (
      nameProblem(endpoint) ??
      numberProblem(endpoint) ??
      viaProblem(endpoint) ??
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
    // The serving gateway is chosen before identities are compared. Otherwise another cluster could publish this node's
    // key later and so replace it.
    const found = problemOf(endpoint) ?? laneProblem(endpoint, server) ?? taken
    if (found !== undefined) {
      refusals.push({ subject: `Endpoint ${endpoint.metadata.name}`, ...found })
      continue
    }
    owners.set(stated, `Endpoint ${endpoint.metadata.name}`)
    const inside = [...reserved, ...ownLanePrefixes(world, cluster)]
    const via = endpointVia(endpoint)
    if (via === 'unreadable') continue
    const link = toLink(endpoint, { cluster, rules, own, via, counts }, (candidate) => {
      // Networks behind different NATs may use the same addresses. A call to an address of this node would reach no
      // peer.
      if (via !== undefined) return 'no'
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

/** Whether a gateway with this lane number can have a link with the Endpoint. */
export function canLink({ spec }: Endpoint, ownLane: number): boolean {
  return spec.lane === ownLane || spec.capabilities.includes(CAPABILITY_ALL_PAIRS)
}

/**
 * One refusal for each cluster that only has Endpoints of other lanes, so that an operator finds why links are missing.
 */
function otherLanesOnly(endpoints: readonly Endpoint[], ownLane: number): Refusal[] {
  const refused = endpoints.filter((endpoint) => !canLink(endpoint, ownLane) && isLaneNumber(endpoint.spec.lane))
  const clusters = [...new Set(refused.map(({ spec }) => spec.cluster))].sort()
  return clusters.map((cluster) => {
    const stated = refused.filter(({ spec }) => spec.cluster === cluster).map(({ spec }) => spec.lane)
    const lanes = [...new Set(stated)].sort((a, b) => a - b).join(', ')
    return {
      subject: `Cluster ${cluster}`,
      reason: 'OtherLaneOnly',
      message: `its release links only gateways of the same lane number: it has ${lanes}, and this node serves ${ownLane}`,
    }
  })
}

/**
 * Addresses and ports at which others call this node's devices. A neighbour behind the same NAT may have the same
 * address with another port.
 */
function placesOfLane(world: GatewayWorld, own: GatewayLaneConfig): ReadonlySet<string> {
  const { lane } = own
  const outside = planCandidates(world, own).filter(({ kind }) => kind === 'public')
  const numbers = [lane, ...world.endpoints.map(({ spec }) => spec.lane).filter(isLaneNumber)]
  const places = outside.flatMap(({ address, port: stated }) =>
    numbers.map((from) => placeOf({ address, port: linkPort({ stated, of: lane, from }) })),
  )
  return new Set(places)
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
 * Ranges that cannot contain a gateway of the cluster: the global addresses of its own pods. The pods of a cluster that
 * is not translated may have addresses of the nodes' network, and then its gateway is inside their ranges. Ranges of
 * other clusters are ignored, because the packets of a cable do not use lanes (LANE_MARK). Otherwise a cluster that
 * states the range of another's gateway would cut off that gateway.
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
    : problem('InvalidValue', `its name does not match its spec: expected ${name}`)
}

function numberProblem({ spec: { lane } }: Endpoint): Problem | undefined {
  return isLaneNumber(lane) ? undefined : problem('InvalidValue', `lane ${lane}: expected 0 to ${MAX_LANE}`)
}

/** It may have no way then: a direct one might be what the topology forbids. */
function viaProblem(endpoint: Endpoint): Problem | undefined {
  if (endpointVia(endpoint) !== 'unreadable') return undefined
  return problem('InvalidValue', `annotation ${ANNOTATION_VIA}: expected ids of members, separated by commas`)
}

function laneProblem(endpoint: Endpoint, serving: LaneServer | undefined): Problem | undefined {
  if (serving === undefined || serving.server === endpoint || serving.successor === endpoint) return undefined
  const { lane, cluster } = endpoint.spec
  const { node } = serving.server.spec
  return problem(
    'LaneServedByOther',
    `lane ${lane} of ${cluster} is served by node ${node}, which is newer, or the first by name`,
  )
}

function byName(a: Endpoint, b: Endpoint): number {
  return a.metadata.name < b.metadata.name ? -1 : 1
}

/** The far end that an Endpoint describes. */
export function farEnd(endpoint: Endpoint, rules: CableRules): FarEnd {
  return { remoteLane: endpoint.spec.lane, endpoint: endpoint.metadata.name, identity: rules.identityOf(endpoint) }
}

/** The far end under its present identity, and under the next one that it has announced. */
export function farEnds(endpoint: Endpoint, rules: CableRules): readonly FarEnd[] {
  const present = farEnd(endpoint, rules)
  const next = rules.nextIdentityOf(endpoint)
  return next === undefined ? [present] : [present, { ...present, identity: next }]
}

interface LinkParts {
  readonly cluster: RemoteCluster
  readonly rules: CableRules
  readonly own: GatewayLaneConfig
  readonly via: readonly string[] | undefined
  /** observedValidator(). */
  readonly counts: (address: string, cluster: string) => boolean
}

function toLink(
  endpoint: Endpoint,
  { cluster, rules, own, via, counts }: LinkParts,
  mayCall: (candidate: EndpointCandidate) => 'yes' | 'last' | 'no',
): RemoteLink {
  const { spec } = endpoint
  const ports = { of: spec.lane, from: own.lane }
  const all = spec.candidates.map((one) => ({ ...one, port: linkPort({ stated: one.port, ...ports }) }))
  const sorted = (which: 'yes' | 'last'): EndpointCandidate[] => all.filter((one) => mayCall(one) === which)
  const counting = sorted('yes').slice(0, MAX_CANDIDATES)
  const candidates = [...counting, ...sorted('last')].slice(0, MAX_CANDIDATES)
  const known = all.filter(({ kind, address }) => kind !== 'observed' || counts(address, cluster.id))
  return {
    ...farEnd(endpoint, rules),
    cluster: spec.cluster,
    index: cluster.index,
    node: spec.node,
    laneAddress: formatAddress(rules.probeAddress(cluster.index, spec.lane)),
    prefixes: cluster.prefixes.map(formatPrefix),
    candidates,
    hidden: isHidden(counting),
    countsItselfHidden: all.length === 0 || (known.length > 0 && isHidden(known)),
    noneCallable: via === undefined && candidates.length === 0 && spec.candidates.length > 0,
    answersSizes: spec.capabilities.includes(CAPABILITY_SIZED_PROBES),
    // A gateway that is reached through a relay is none itself: no packet passes two.
    ...(spec.capabilities.includes(CAPABILITY_RELAY) && via === undefined ? { relays: true } : {}),
    ...(via === undefined ? {} : { via }),
    ...(spec.capabilities.includes(CAPABILITY_PORT_MAPPED) ? { portMapped: true } : {}),
    ...(isSurelyPublic(endpoint) ? { isPublic: true } : {}),
    ...(statesRelayCosts(spec.capabilities) ? { relayCosts: decodeRelayCosts(spec.capabilities) } : {}),
  }
}

/**
 * A far end that is not behind NAT, as its Endpoint shows. One that states a public and a private address may be behind a
 * NAT that forwards its port: the operator stated the address of that. What it states falsely slows down the keepalives
 * of its own links.
 */
function isSurelyPublic({ spec: { candidates, capabilities } }: Endpoint): boolean {
  if (candidates.length === 0 || capabilities.includes(CAPABILITY_PORT_MAPPED)) return false
  return candidates.every(({ kind, address }) => kind !== 'observed' && isPublicAddress(address))
}

function isPublicAddress(text: string): boolean {
  try {
    const address = parseAddress(text)
    return !UNGRANTED_SPACE.some((space) => space.family === address.family && containsAddress(space, address))
  } catch {
    return false
  }
}

/** True for an IPv4 address to which a packet can be sent outside the lanes, with a valid port. */
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

// The results of model/addresses/remote-clusters.ts about Clusters, with the addresses of this node. Pure.

/** An object that is not used, and the reason. */
export interface Refusal extends Problem {
  /** The object that is not used, such as `Cluster paris` or `Endpoint paris.gw-lane0`. */
  readonly subject: string
}

/** Remote clusters that may be routed, and refusals of the others. */
export function checkClusters(world: GatewayWorld): { clusters: readonly RemoteCluster[]; refusals: Refusal[] } {
  const { own, clusters: all, nodes } = world
  const underlay = underlayAddresses(
    nodes,
    world.addresses.map((entry) => entry.address),
  )
  const needed = machineRequiredRanges({
    nodes: underlayAddresses(nodes),
    interfaces: world.addresses.map((entry) => entry.address),
    nextHops: world.machine?.nextHops ?? [],
    nameServers: world.machine?.nameServers ?? [],
  })
  const { clusters, refused } = checkRemoteClusters({ own, clusters: all, underlay, needed })
  return { clusters, refusals: refused.map(({ name, ...why }) => ({ subject: `Cluster ${name}`, ...why })) }
}

// Chooses under which identity a link leads to a far end that is about to take another one, or has just taken it. The
// state of the device decides, not the memory of a process, so a restart changes nothing. Pure.

/** Identities of this node: those of its devices, and the announced one. */
function ownIdentities({ laneStates, nextIdentity }: GatewayWorld): readonly string[] {
  const present = [...laneStates.values()].map(({ identity }) => identity)
  return [...new Set([...present, ...(nextIdentity === undefined ? [] : [nextIdentity])])]
}

interface AnnouncedIdentities {
  /** Valid announced identities, by the names of the Endpoints. */
  readonly identities: ReadonlyMap<string, string>
  readonly refusals: readonly Refusal[]
}

/**
 * The announced identities, without those that another end already has, or that an Endpoint with an earlier name has
 * announced. A refusal affects only the announcement.
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

/** The state of a link under the identity that carries traffic, or else under the first one that is known. */
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
 * A far end has its present identity until this node has followed it. If a link does not answer, its far end may have
 * changed its identity without a notice that arrived. The other identity is then called beside it, and takes over once
 * it has completed a handshake.
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
  if (view?.state === 'up' && view.suspected !== true) return { serving }
  return stateOf(other)?.handshakeMs === undefined ? { serving, called: other } : { serving: other }
}
