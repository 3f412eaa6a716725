/** Finds the addresses and ports at which the lanes of this node can be called. Pure. */
import {
  type AddressPort,
  type Prefix,
  UNGRANTED_SPACE,
  classifyAddress,
  compareAddresses,
  containsAddress,
  formatAddress,
  ipv4Among,
  parseAddress,
  parsePrefix,
  prefixOf,
  reservedPrefixes,
} from '../../model/addresses/addresses.ts'
import {
  type Cluster,
  DEFAULT_GLOBAL_RANGE,
  type EndpointCandidate,
  RELAY_LAST_PORT,
  RELAY_PORT,
} from '../../model/model.ts'
import { isHidden, isPublicName } from '../../model/lanes/lanes.ts'
import { type Problem, problem } from '../../model/reasons/reasons.ts'
import type { GatewayLaneConfig, GatewayWorld } from '../world/world.ts'

/**
 * Candidates of this lane, best first: public addresses (from the operator, then the node's own), the address in the
 * nodes' network, and last the place to which a router leads calls, and the address that the broker saw when this
 * cluster joined, if it is valid, at the port which a NAT may have kept. A node behind NAT has candidates too: peers behind the same NAT can call it there, and
 * this node calls the others.
 *
 * An address that this node has itself is called at the port on which it listens, and an address outside at the public
 * port. So the address that the broker saw is a way in while the public name still has the address of yesterday.
 */
export function planCandidates(world: GatewayWorld, lane: GatewayLaneConfig): EndpointCandidate[] {
  const { port } = lane
  const portOutside = publicPortOf(lane)
  const internal = internalAddress(world)
  const external = ipv4Among(addressesOfType(world, 'ExternalIP')).slice(0, 1)
  const others = external.map((address) => ({ address, port: hasAddress(world, address) ? port : portOutside }))
  const observed = ownObservedAddress(world)
  // The observed address is one of this node's addresses that the Node does not state.
  const isOwn = observed !== undefined && hasAddress(world, observed)
  if (isOwn && observed !== internal) others.push({ address: observed, port })
  const stated = statedAddresses(world, lane).filter((address) => address !== internal || !isNamed(lane))
  const outside = [...stated.map((address) => ({ address, port: portOutside })), ...others]
  const candidates: EndpointCandidate[] = [
    ...outside.map((one) => ({ kind: 'public', ...one }) as const),
    ...(internal === undefined ? [] : [{ kind: 'private', address: internal, port } as const]),
  ]
  const firsts = candidates.filter((one, i) => candidates.findIndex((other) => other.address === one.address) === i)
  if (observed === undefined || isOwn || firsts.some(({ address }) => address === observed)) return firsts
  const { mapped } = world
  const led = mapped === undefined ? [] : [{ address: formatAddress(mapped.address), port: mapped.port }]
  const places = [...led, { address: observed, port: portOutside }]
  const behind = places.filter((one, i) => i === 0 || one.address !== led[0]?.address || one.port !== led[0].port)
  return [...firsts, ...behind.map((one) => ({ kind: 'observed', ...one }) as const)]
}

/** Whether a router leads calls to this lane, at the first of its observed candidates. */
export function isPortMapped(world: GatewayWorld, lane: GatewayLaneConfig): boolean {
  return world.mapped !== undefined && planCandidates(world, lane).some(({ kind }) => kind === 'observed')
}

/** The port outside for far gateways of this lane's own number. */
function publicPortOf({ lane, port, publicPort }: GatewayLaneConfig): number {
  return publicPort === undefined ? port : publicPort + lane
}

function isNamed({ publicAddress }: GatewayLaneConfig): boolean {
  return publicAddress !== undefined && isPublicName(publicAddress)
}

/** The public address that the operator states, or those of the public name. */
function statedAddresses({ publicName, own }: GatewayWorld, lane: GatewayLaneConfig): readonly string[] {
  const { publicAddress } = lane
  if (publicAddress === undefined) return []
  if (!isNamed(lane)) return [publicAddress]
  if (publicName?.name !== publicAddress) return []
  // The ranges of this cluster may have changed since the answer was checked.
  const ranges = rangesOfOwn(own)
  return publicName.addresses.filter((text) => whyNotCalled(text, ranges) === undefined)
}

/** Most addresses of a public name that are published. Peers call at most eight candidates (check-remotes.ts). */
export const MAX_NAME_ADDRESSES = 4
/** Most addresses that one message names. */
const MOST_NAMED = 3

/**
 * Checks the answer for a public name. `ranges` are those in which no gateway can be called (rangesOfOwn()). Gives the
 * usable addresses, sorted, so that a name server that rotates its answer changes nothing, and what is wrong with the
 * others. An answer without usable addresses is a problem and gives none: the caller keeps those of the answer before.
 */
export function checkAnswer(
  name: string,
  answer: readonly string[],
  ranges: readonly Prefix[],
): { readonly addresses: readonly string[]; readonly problem?: Problem } {
  const texts = [...new Set(answer)]
  const refused = texts.flatMap((text) => {
    const why = whyNotCalled(text, ranges)
    return why === undefined ? [] : [{ text, why }]
  })
  const bad = new Set(refused.map(({ text }) => text))
  const usable = texts
    .filter((text) => !bad.has(text))
    .sort((a, b) => compareAddresses(parseAddress(a), parseAddress(b)))
  const addresses = usable.slice(0, MAX_NAME_ADDRESSES)
  if (texts.length === 0) return { addresses, problem: problem('PublicNameUnresolved', `${name} has no address`) }
  // A name with addresses of both families is usual, and the IPv6 ones do no harm.
  const reported = addresses.length > 0 ? refused.filter(({ why }) => why !== IS_IPV6) : refused
  if (reported.length > 0) {
    const some = reported.slice(0, MOST_NAMED).map(({ text, why }) => `${printable(text)} (${why})`)
    const more = reported.length > MOST_NAMED ? ` and ${reported.length - MOST_NAMED} more` : ''
    const message = `${name} has addresses that others cannot call: ${some.join(', ')}${more}`
    return { addresses, problem: problem('PublicNameUnusable', message) }
  }
  if (usable.length === addresses.length) return { addresses }
  const message = `${name} has ${usable.length} addresses: expected at most ${MAX_NAME_ADDRESSES}, the lowest are used`
  return { addresses, problem: problem('PublicNameUnusable', message) }
}

const IS_IPV6 = 'IPv6'

/** Undefined if a gateway can be called at this address outside the lanes. */
function whyNotCalled(text: string, ranges: readonly Prefix[]): string | undefined {
  const [address] = readable(() => parseAddress(text))
  if (address === undefined) return 'not an address'
  if (address.family === 6) return IS_IPV6
  const kind = classifyAddress(address)
  // linkLocal as link-local.
  if (kind !== 'usable') return kind.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)
  return ranges.some((prefix) => containsAddress(prefix, address)) ? 'inside the lanes' : undefined
}

/** An answer comes from a name server, so it may contain anything. */
function printable(text: string): string {
  return text.slice(0, 64).replaceAll(/[^\x20-\x7e]/g, '?')
}

/** True if this node's own lane cannot be called from outside, as far as is known. */
export function isOwnLaneHidden(world: GatewayWorld, lane: GatewayLaneConfig): boolean {
  const candidates = planCandidates(world, lane)
  return candidates.length === 0 || (isBehindNat(world) && isHidden(candidates))
}

/**
 * True if the candidates of an end show no way in from outside, so that it asks relays for links that do not come up.
 * Beside isOwnLaneHidden() this counts an observed address that other members have, too: they may be behind the same
 * NAT. A member that states it falsely costs a link that is down a few questions, and nothing else. Takes an end that
 * does not relay itself.
 */
export function seeksRelays({ hidden, candidates }: CalledEnd): boolean {
  return hidden || isHidden(candidates)
}

/** An end of a link, as the other end may call it. */
interface CalledEnd {
  /** It cannot be called from outside, as far as is known. */
  readonly hidden: boolean
  readonly candidates: readonly EndpointCandidate[]
}

/**
 * This node's first IPv4 InternalIP, preferably one outside the pod CIDRs. If pods have addresses of the nodes'
 * network, there is no such address; the other clusters can call the node inside them unless this cluster is
 * translated.
 */
function internalAddress(world: GatewayWorld): string | undefined {
  const pods = world.own.spec.podCIDRs.map((text) => parsePrefix(text))
  const addresses = ipv4Among(addressesOfType(world, 'InternalIP'))
  return addresses.find((text) => !pods.some((pod) => containsAddress(pod, parseAddress(text)))) ?? addresses[0]
}

function addressesOfType(world: GatewayWorld, type: string): string[] {
  const node = world.nodes.find((entry) => entry.metadata.name === world.node)
  const reported = (node?.status?.addresses ?? []).filter((entry) => entry.type === type)
  return reported.map((entry) => entry.address)
}

// What follows from the observed address of a cluster. A device on the path may have replaced it by its own: a
// kube-proxy, a load balancer, a bridge. So it counts only if nothing contradicts it, and does not count if that cannot
// be known. Pure.

type View = Pick<GatewayWorld, 'observedAddress' | 'own' | 'clusters' | 'endpoints' | 'nodes' | 'addresses'>

/**
 * The observed address of this cluster as it is published to the others. Undefined if it is not usable. What other
 * clusters state as their addresses is ignored here. Otherwise one member could take another's address away, and two
 * clusters with the same observed address would withdraw and publish it in turn.
 */
export function ownObservedAddress(world: View): string | undefined {
  const { observedAddress: text } = world
  if (text === undefined || isInside(text, rangesAround(world, text))) return undefined
  if (hasAddress(world, text)) return text
  const neighbours = world.addresses.flatMap(({ address }) => networkOf(address))
  return isInside(text, neighbours) || ownAddresses(world).has(text) ? undefined : text
}

/**
 * True if the broker saw this cluster at an address that no other cluster claims in any way and that this node does not
 * have.
 */
export function isBehindNat(world: View): boolean {
  const text = ownObservedAddress(world)
  if (text === undefined || hasAddress(world, text)) return false
  return isClaimedOnce(world)(text, world.own.spec.id)
}

/**
 * Returns a function that tells whether the observed address that a gateway of `cluster` states is valid here. An
 * invalid one is still called, after all others, because the cluster that contradicts it may lie. Create it once for
 * all gateways.
 */
export function observedValidator(world: View): (text: string, cluster: string) => boolean {
  const ours = new Set([...ownAddresses(world), ownObservedAddress(world)])
  const isOnce = isClaimedOnce(world)
  return (text, cluster) => !ours.has(text) && isOnce(text, cluster)
}

/** True for an address of `cluster` that no other cluster states in any way and that is inside no cluster's ranges. */
function isClaimedOnce(world: View): (text: string, cluster: string) => boolean {
  const { nodes, observed } = reportedAddresses(world)
  const inLanes = rangesInLanes(world)
  const claimed = claimedRanges(world.clusters)
  return (text, cluster) =>
    !isInside(text, isPrivate(text) ? [...inLanes.own, ...inLanes.others, ...claimed] : inLanes.own) &&
    !isReportedElsewhere(nodes, text, cluster) &&
    !isReportedElsewhere(observed, text, cluster)
}

/** Addresses of this node's interfaces, and addresses of every type of this cluster's nodes. */
export function ownAddresses({ nodes, addresses }: Pick<View, 'nodes' | 'addresses'>): ReadonlySet<string> {
  const reported = nodes.flatMap((node) => node.status?.addresses ?? []).map(({ address }) => address)
  return new Set([...reported, ...addresses.map(({ address }) => address.split('/')[0] ?? '')])
}

/** Whether an interface of this node has the address. */
function hasAddress({ addresses }: Pick<View, 'addresses'>, text: string): boolean {
  return addresses.some(({ address }) => address.split('/')[0] === text)
}

/** System ports (RFC 6335): no NAT maps a gateway to one, and what listens there is not one. */
const FIRST_MAPPED_PORT = 1024

/**
 * Returns a function that tells whether a probe may go to a place that a relay, or a far end, has named: an address of
 * a machine that is not this one, outside the lanes, at a port that a NAT may give to a gateway. A port of relays would
 * be taken for one. Create it once for all places.
 */
export function placeValidator(world: View): (at: AddressPort) => boolean {
  const [ours, ranges] = [ownAddresses(world), rangesOfOwn(world.own)]
  return ({ address, port }) => {
    const text = formatAddress(address)
    if (port < FIRST_MAPPED_PORT || (port >= RELAY_PORT && port <= RELAY_LAST_PORT)) return false
    return whyNotCalled(text, ranges) === undefined && !ours.has(text)
  }
}

/** Clusters, by the addresses that their Endpoints state. */
type Reporters = ReadonlyMap<string, ReadonlySet<string>>

function reportedAddresses({ endpoints }: Pick<View, 'endpoints'>): {
  readonly nodes: Reporters
  readonly observed: Reporters
} {
  const nodes = new Map<string, Set<string>>()
  const observed = new Map<string, Set<string>>()
  for (const { spec } of endpoints) {
    for (const { kind, address } of spec.candidates) {
      const reporters = kind === 'observed' ? observed : nodes
      reporters.set(address, (reporters.get(address) ?? new Set()).add(spec.cluster))
    }
  }
  return { nodes, observed }
}

function isReportedElsewhere(reporters: Reporters, text: string, cluster: string): boolean {
  return [...(reporters.get(text) ?? [])].some((reporter) => reporter !== cluster)
}

/** Ranges inside which this address cannot be called. */
function rangesAround(world: View, text: string): readonly Prefix[] {
  const { own, others } = rangesInLanes(world)
  return isPrivate(text) ? [...own, ...others] : own
}

/**
 * A bridge or kube-proxy on the path puts a private address in place of the caller's, and the range of a cluster may
 * show that. Public addresses belong to gateways, so a range that a cluster states around one is ignored.
 */
function isPrivate(text: string): boolean {
  return readable(() => parseAddress(text)).some((address) =>
    UNGRANTED_SPACE.some((prefix) => containsAddress(prefix, address)),
  )
}

/**
 * Ranges inside which no gateway can be called. `own`: this cluster's ranges and ranges that belong to no cluster.
 * `others`: ranges of other clusters that are routed into lanes.
 */
function rangesInLanes({ own, clusters }: Pick<View, 'own' | 'clusters'>): {
  readonly own: readonly Prefix[]
  readonly others: readonly Prefix[]
} {
  // The pod CIDRs of a translated cluster are not routed, so a cluster may state any range there.
  const flat = clusters.filter(({ spec }) => spec.globalCIDRs.length === 0)
  return { own: rangesOfOwn(own), others: claimedRanges(flat) }
}

/** This cluster's ranges, and ranges that belong to no cluster: no gateway can be called inside them. */
export function rangesOfOwn(own: Cluster): readonly Prefix[] {
  const reserved = reservedPrefixes(own.spec).map(({ prefix }) => prefix)
  const nobodys = readable(() => parsePrefix(DEFAULT_GLOBAL_RANGE))
  return [...claimedRanges([own]), ...nobodys, ...reserved]
}

function claimedRanges(clusters: View['clusters']): Prefix[] {
  const texts = clusters.flatMap(({ spec }) => [spec.podCIDRs, spec.serviceCIDRs, spec.globalCIDRs].flat())
  return [...new Set(texts)].flatMap((text) => readable(() => parsePrefix(text)))
}

/** The network of an interface's address, such as 192.0.2.10/24. */
function networkOf(text: string): Prefix[] {
  const [address = '', length = ''] = text.split('/')
  return length === '' ? [] : readable(() => prefixOf(parseAddress(address), Number(length)))
}

/** True also for text that is not an IPv4 address at which a gateway could be called. */
function isInside(text: string, ranges: readonly Prefix[]): boolean {
  const [address] = readable(() => parseAddress(text))
  if (address === undefined || address.family !== 4 || classifyAddress(address) !== 'usable') return true
  return formatAddress(address) !== text || ranges.some((prefix) => containsAddress(prefix, address))
}

/** Gives nothing if the text cannot be parsed: it is refused where it is used. */
function readable<T>(read: () => T): T[] {
  try {
    return [read()]
  } catch {
    return []
  }
}

/** The UDP port of a link, which far ends compute from candidates. */
export { linkPort } from '../../model/lanes/lanes.ts'
