/** Where the lanes of this node can be called. Pure. */
import {
  type Prefix,
  UNGRANTED_SPACE,
  classifyAddress,
  containsAddress,
  formatAddress,
  ipv4Among,
  parseAddress,
  parsePrefix,
  prefixOf,
  reservedPrefixes,
} from '../../model/addresses/addresses.ts'
import { DEFAULT_GLOBAL_RANGE, type EndpointCandidate } from '../../model/model.ts'
import type { GatewayLaneConfig, GatewayWorld } from '../world/world.ts'

/**
 * Where this lane may be called, best first: public addresses (the one that an operator gave, the node's own), the
 * address in the nodes' network, and at last the one that the broker saw, where it counts. Also behind NAT: who is
 * behind the same one can call there, and the others are called.
 */
export function planCandidates(world: GatewayWorld, { port, publicAddress }: GatewayLaneConfig): EndpointCandidate[] {
  const internal = internalAddress(world)
  const external = ipv4Among(addressesOfType(world, 'ExternalIP')).slice(0, 1)
  const outside = [...(publicAddress === undefined ? [] : [publicAddress]), ...external]
  const observed = ownObservedAddress(world)
  // The broker was called from it, and it is this node's: another name for what the Node did not state.
  const isOwn = observed !== undefined && hasAddress(world, observed)
  if (isOwn && observed !== internal) outside.push(observed)
  const candidates: EndpointCandidate[] = [
    ...outside.map((address) => ({ kind: 'public', address, port }) as const),
    ...(internal === undefined ? [] : [{ kind: 'private', address: internal, port } as const]),
    ...(observed === undefined || isOwn ? [] : [{ kind: 'observed', address: observed, port } as const]),
  ]
  return candidates.filter((one, i) => candidates.findIndex((other) => other.address === one.address) === i)
}

/** Of a gateway behind NAT that nobody outside can call, as far as is known: it has to call the others itself. */
export function isHidden(candidates: readonly EndpointCandidate[]): boolean {
  const has = (kind: EndpointCandidate['kind']): boolean => candidates.some((one) => one.kind === kind)
  return candidates.length === 0 || (has('observed') && !has('public'))
}

/** Of this node's own lane. */
export function isOwnLaneHidden(world: GatewayWorld, lane: GatewayLaneConfig): boolean {
  const candidates = planCandidates(world, lane)
  return candidates.length === 0 || (isBehindNat(world) && isHidden(candidates))
}

/**
 * This node's first IPv4 InternalIP, rather one outside the pod CIDRs. Where pods have addresses of the nodes' own
 * network there is none; the others can call it there unless this cluster is translated.
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

// What follows from the address that the broker saw a cluster call from. Something on the way may have written its own
// there: a kube-proxy, a load balancer, a bridge. So it counts only where nothing speaks against it, and does not count
// where that cannot be known. Pure.

type View = Pick<GatewayWorld, 'observedAddress' | 'own' | 'clusters' | 'endpoints' | 'nodes' | 'addresses'>

/**
 * The observed address of this cluster as the others get it; undefined where it leads nowhere. What the others state as
 * addresses of theirs has no say here: else one member could take another's away, and two clusters seen under one
 * address would withdraw theirs and state it again in turn.
 */
function ownObservedAddress(world: View): string | undefined {
  const { observedAddress: text } = world
  if (text === undefined || isInside(text, rangesAround(world, text))) return undefined
  if (hasAddress(world, text)) return text
  const neighbours = world.addresses.flatMap(({ address }) => networkOf(address))
  return isInside(text, neighbours) || ownAddresses(world).has(text) ? undefined : text
}

/**
 * True where the broker saw this cluster under an address that nobody else claims in any way, and that this node does
 * not have.
 */
export function isBehindNat(world: View): boolean {
  const text = ownObservedAddress(world)
  if (text === undefined || hasAddress(world, text)) return false
  return isClaimedOnce(world)(text, world.own.spec.id)
}

/**
 * Whether the observed address that a gateway of `cluster` states counts here too. One that does not is called all the
 * same, after all others: the cluster that speaks against it may lie. To be made once for all of them.
 */
export function observedValidator(world: View): (text: string, cluster: string) => boolean {
  const ours = new Set([...ownAddresses(world), ownObservedAddress(world)])
  const isOnce = isClaimedOnce(world)
  return (text, cluster) => !ours.has(text) && isOnce(text, cluster)
}

/** Of an address of `cluster`: no other one states it in any way, and it is inside nobody's range. */
function isClaimedOnce(world: View): (text: string, cluster: string) => boolean {
  const { nodes, observed } = reportedAddresses(world)
  const inLanes = rangesInLanes(world)
  const claimed = claimedRanges(world.clusters)
  return (text, cluster) =>
    !isInside(text, isPrivate(text) ? [...inLanes.own, ...inLanes.others, ...claimed] : inLanes.own) &&
    !isReportedElsewhere(nodes, text, cluster) &&
    !isReportedElsewhere(observed, text, cluster)
}

/** Addresses of this node's interfaces, and of every type of this cluster's nodes. */
export function ownAddresses({ nodes, addresses }: Pick<View, 'nodes' | 'addresses'>): ReadonlySet<string> {
  const reported = nodes.flatMap((node) => node.status?.addresses ?? []).map(({ address }) => address)
  return new Set([...reported, ...addresses.map(({ address }) => address.split('/')[0] ?? '')])
}

/** Whether an interface of this node has the address. */
function hasAddress({ addresses }: Pick<View, 'addresses'>, text: string): boolean {
  return addresses.some(({ address }) => address.split('/')[0] === text)
}

/** Clusters by the addresses that their Endpoints state. */
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

/** Where this address cannot be called, whatever it is. */
function rangesAround(world: View, text: string): readonly Prefix[] {
  const { own, others } = rangesInLanes(world)
  return isPrivate(text) ? [...own, ...others] : own
}

/**
 * A bridge or kube-proxy on the way puts a private address in place of the caller's; of such, somebody's range may
 * speak. Public ones are gateways' own: a range that somebody states around one has no say.
 */
function isPrivate(text: string): boolean {
  return readable(() => parseAddress(text)).some((address) =>
    UNGRANTED_SPACE.some((prefix) => containsAddress(prefix, address)),
  )
}

/**
 * Where no gateway can be called: this cluster's own ranges and what is nobody's; those of others that lead into lanes.
 */
function rangesInLanes({ own, clusters }: Pick<View, 'own' | 'clusters'>): {
  readonly own: readonly Prefix[]
  readonly others: readonly Prefix[]
} {
  // Where a cluster is translated, what it says of its pods leads nowhere, and anybody may say anything.
  const flat = clusters.filter(({ spec }) => spec.globalCIDRs.length === 0)
  const reserved = reservedPrefixes(own.spec).map(({ prefix }) => prefix)
  const nobodys = readable(() => parsePrefix(DEFAULT_GLOBAL_RANGE))
  return { own: [...claimedRanges([own]), ...nobodys, ...reserved], others: claimedRanges(flat) }
}

function claimedRanges(clusters: View['clusters']): Prefix[] {
  const texts = clusters.flatMap(({ spec }) => [spec.podCIDRs, spec.serviceCIDRs, spec.globalCIDRs].flat())
  return [...new Set(texts)].flatMap((text) => readable(() => parsePrefix(text)))
}

/** The network that an interface's address, such as 192.0.2.10/24, is in. */
function networkOf(text: string): Prefix[] {
  const [address = '', length = ''] = text.split('/')
  return length === '' ? [] : readable(() => prefixOf(parseAddress(address), Number(length)))
}

/** True also of what is no IPv4 address that a gateway could be called at. */
function isInside(text: string, ranges: readonly Prefix[]): boolean {
  const [address] = readable(() => parseAddress(text))
  if (address === undefined || address.family !== 4 || classifyAddress(address) !== 'usable') return true
  return formatAddress(address) !== text || ranges.some((prefix) => containsAddress(prefix, address))
}

/** Nothing where it cannot be read: that is refused where it is used. */
function readable<T>(read: () => T): T[] {
  try {
    return [read()]
  } catch {
    return []
  }
}

/**
 * The UDP ports of links. Gateway i of one cluster and gateway j of another are joined by one link: on i it is on the
 * device towards remote lane j, on j on that towards remote lane i. Each device listens on a port of its own, which is
 * the gateway's base port plus the number of the far gateways that it is for. What a gateway states, in its
 * configuration and as candidates of its Endpoint, is the port for far gateways of its own number: what a gateway of a
 * release with one device stated. Pure.
 */

interface LinkPortInit {
  /** The port that the gateway states. */
  readonly stated: number
  /** The lane number of the gateway that states it. */
  readonly of: number
  /** The lane number of the gateway at the other end. */
  readonly from: number
}

/**
 * Where a gateway takes packets of far gateways with the lane number `from`. It may be no port (below 1, above 65535):
 * what others state is checked after this.
 */
export function linkPort({ stated, of, from }: LinkPortInit): number {
  return stated - of + from
}
