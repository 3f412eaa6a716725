/** Plans the backends of each port of one imported service. Pure. */
import type { Prefix } from '../../model/addresses/addresses.ts'
import {
  type EndpointPort,
  type EndpointSlice,
  type ImportPort,
  LABEL_SOURCE_CLUSTER,
  type Protocol,
  type ServiceImport,
  type ServiceImportSpec,
  type SliceEndpoint,
} from '../../model/model.ts'
import { type AddressFamily, addressFamily } from './address-family.ts'

/**
 * Weights become slots: a service port owns N slots, each slot names one backend, and a connection draws a slot. Pure
 * and deterministic.
 */

interface WeightedBackend {
  /** Address and port in the form that nft prints: `244.1.0.9 . 8080`. */
  readonly target: string
  /** The share of this backend relative to the others. Above 0. */
  readonly weight: number
}

/** Most slots of a service port. If there are more backends, each node uses its own 256 of them. */
export const MAX_SLOTS = 256
/** Slots of a service port with session affinity: enough that each backend gets some. */
export const AFFINITY_SLOTS = 64

/**
 * Slots for connections that draw one at random. The shares equal the weights exactly if their smallest whole numbers
 * sum up to at most MAX_SLOTS, and otherwise as nearly as that many slots allow (largest remainder). `seed` (the node's
 * name) selects the backends if there are more than MAX_SLOTS, so that the nodes together use all of them.
 */
export function randomSlots(backends: readonly WeightedBackend[], seed: string): string[] {
  const used = limited(backends, seed)
  if (used.every((b) => b.weight === used[0]?.weight)) return used.map((b) => b.target)
  const counts = slotCounts(used.map((b) => b.weight))
  return used.flatMap((backend, i) => new Array<string>(counts[i] ?? 0).fill(backend.target))
}

/**
 * Slots for connections whose client address picks the slot. Each slot takes the backend with the highest score
 * (weighted rendezvous hashing). So a backend that is removed only moves its own clients, and a new one takes its share
 * evenly from all.
 */
export function clientSlots(backends: readonly WeightedBackend[], seed: string): string[] {
  const used = limited(backends, seed)
  if (used.length === 0) return []
  const count = used.length * 2 > AFFINITY_SLOTS ? MAX_SLOTS : AFFINITY_SLOTS
  return Array.from({ length: count }, (_, slot) => {
    let best = used[0] as WeightedBackend
    let bestScore = -1
    for (const backend of used) {
      const score = backend.weight / -Math.log(unitHash(`${addressOf(backend.target)} ${slot}`))
      if (score > bestScore) [best, bestScore] = [backend, score]
    }
    return best.target
  })
}

/** Whole numbers, at least 1 each, in proportion to the weights, with a sum of at most MAX_SLOTS. */
export function slotCounts(weights: readonly number[]): number[] {
  if (weights.every((w) => Number.isInteger(w))) {
    const divisor = weights.reduce(gcd, 0)
    const smallest = weights.map((w) => w / divisor)
    if (smallest.reduce((sum, w) => sum + w, 0) <= MAX_SLOTS) return smallest
  }
  const total = weights.reduce((sum, w) => sum + w, 0)
  const spare = MAX_SLOTS - weights.length
  const exact = weights.map((w) => (w / total) * spare)
  const counts = exact.map((share) => 1 + Math.floor(share))
  const byRemainder = exact.map((share, i) => ({ i, rest: share % 1 })).sort((a, b) => b.rest - a.rest || a.i - b.i)
  let left = MAX_SLOTS - counts.reduce((sum, n) => sum + n, 0)
  for (const { i } of byRemainder) {
    if (left <= 0) break
    counts[i] = (counts[i] ?? 0) + 1
    left -= 1
  }
  return counts
}

function limited(backends: readonly WeightedBackend[], seed: string): readonly WeightedBackend[] {
  if (backends.length <= MAX_SLOTS) return backends
  const ranked = backends.map((backend) => ({ backend, rank: hash(`${seed} ${backend.target}`) }))
  ranked.sort((a, b) => a.rank - b.rank || (a.backend.target < b.backend.target ? -1 : 1))
  const chosen = new Set(ranked.slice(0, MAX_SLOTS).map((r) => r.backend))
  return backends.filter((backend) => chosen.has(backend))
}

// Only the address is hashed, so that all ports of a service lead a client to the same pod.
function addressOf(target: string): string {
  return target.slice(0, target.indexOf(' '))
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b)
}

/** A hash of the text as a number above 0 and below 1. */
function unitHash(text: string): number {
  return (hash(text) + 0.5) / 2 ** 32
}

/** FNV-1a with a final mix, so that short inputs that differ in one digit have very different hashes. */
function hash(text: string): number {
  let h = 0x811c9dc5
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193)
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return (h ^ (h >>> 16)) >>> 0
}

// Which endpoints of a service this node may use, by internalTrafficPolicy and trafficDistribution of the
// ServiceImport. `Local` works as in kube-proxy. Zones follow the hints of each endpoint, or else its `zone`;
// kube-proxy uses only hints, and only if every ready endpoint has one. Pure.

/** Where this node is. */
interface NodePlace {
  readonly node: string
  /** This cluster's id. A node of the same name in another cluster is another node. */
  readonly self: string
  /** Undefined if the Node has no zone. */
  readonly zone: string | undefined
}

/** `node`: only endpoints on this node. `prefer`: the first locality that has endpoints, or else all endpoints. */
type LocalityRule = { readonly kind: 'node' } | { readonly kind: 'prefer'; readonly order: readonly Locality[] }

/** `node`: on this node. `zone`: for this node's zone. */
type Locality = 'node' | 'zone'

const ALL: LocalityRule = { kind: 'prefer', order: [] }
const DISTRIBUTIONS: ReadonlyMap<string, LocalityRule> = new Map([
  ['PreferClose', { kind: 'prefer', order: ['zone'] }],
  ['PreferSameZone', { kind: 'prefer', order: ['zone'] }],
  ['PreferSameNode', { kind: 'prefer', order: ['node', 'zone'] }],
])

/** The policy overrides the preference. An unknown preference is ignored, as Kubernetes specifies. */
function localityRule(spec: ServiceImportSpec): LocalityRule {
  if (spec.internalTrafficPolicy === 'Local') return { kind: 'node' }
  return DISTRIBUTIONS.get(spec.trafficDistribution ?? '') ?? ALL
}

/** `cluster` is the cluster of the endpoint. */
function isNear(locality: Locality, endpoint: SliceEndpoint, cluster: string, place: NodePlace): boolean {
  if (locality === 'node') return cluster === place.self && endpoint.nodeName === place.node
  if (place.zone === undefined) return false
  const hinted = endpoint.hints?.forZones ?? []
  return hinted.length > 0 ? hinted.some(({ name }) => name === place.zone) : endpoint.zone === place.zone
}

/** What happens to connections to one (clusterset IP, protocol, port). */
export interface PortPlan {
  /** How a connection gets its slot: at random each time, or always the same one for a client address. */
  readonly pick: 'random' | 'client'
  /** Backends in the form that nft prints, `244.1.0.9 . 8080`. If empty, connections are refused. */
  readonly slots: readonly string[]
  /**
   * Only without slots: there are backends, but this node may use none of them. Connections are dropped, not refused.
   */
  readonly dropped?: true
}

/** The node's name also seeds the choice among more than 256 backends. */
export interface ServiceContext extends NodePlace {
  /** Its family is the one that is planned: the addresses of the service and the slices. */
  readonly clustersetIpRange: Prefix
  /** Clusters that answer. Undefined while this is not known; then all clusters count. */
  readonly reachable: ReadonlySet<string> | undefined
}

/** Port plans by map key, `245.0.0.7 . tcp . 80`. Empty for a headless service and for one without an address. */
export function planService(
  service: ServiceImport,
  slices: readonly EndpointSlice[],
  context: ServiceContext,
): ReadonlyMap<string, PortPlan> {
  const plans = new Map<string, PortPlan>()
  if (service.spec.type !== 'ClusterSetIP') return plans
  const family = addressFamily(context.clustersetIpRange.family)
  const isInRange = family.within([context.clustersetIpRange])
  const addresses = (service.spec.ips ?? []).flatMap((text) => clustersetIp(text, family, isInRange))
  if (addresses.length === 0) return plans
  const reachable = slices.flatMap((slice) => reachableSlice(slice, family, context))
  const rule = localityRule(service.spec)
  const pick = service.spec.sessionAffinity === 'ClientIP' ? 'client' : 'random'
  for (const port of service.spec.ports) {
    if (!isPortNumber(port.port)) continue
    const { backends, elsewhere } = portBackends(port, reachable, rule, family, context)
    const slots = pick === 'client' ? clientSlots(backends, context.node) : randomSlots(backends, context.node)
    const plan: PortPlan = elsewhere ? { pick, slots, dropped: true } : { pick, slots }
    for (const address of addresses) plans.set(portKey(address, port.protocol, port.port), plan)
  }
  return plans
}

/** The key of a port in the form that nft prints: `245.0.0.7 . tcp . 80`. */
export function portKey(address: string, protocol: Protocol, port: number): string {
  return `${address} . ${protocol.toLowerCase()} . ${port}`
}

function clustersetIp(text: string, family: AddressFamily, isInRange: (address: string) => boolean): string[] {
  const address = family.canonical(text)
  return address !== undefined && isInRange(address) ? [address] : []
}

interface SourcedSlice {
  readonly slice: EndpointSlice
  readonly cluster: string
}

function reachableSlice(slice: EndpointSlice, family: AddressFamily, context: ServiceContext): SourcedSlice[] {
  const cluster = slice.metadata.labels?.[LABEL_SOURCE_CLUSTER]
  if (cluster === undefined || slice.addressType !== family.slices) return []
  return context.reachable === undefined || context.reachable.has(cluster) ? [{ slice, cluster }] : []
}

interface Backends {
  readonly backends: readonly WeightedBackend[]
  /** There are backends, but this node may use none of them. */
  readonly elsewhere: boolean
}

/**
 * Ready endpoints, and only the nearest ones if the rule asks for it. If there is none, terminating endpoints that
 * still serve, wherever they are. If the rule allows only this node, both are searched on this node alone. All this
 * works as in kube-proxy.
 */
function portBackends(
  port: ImportPort,
  slices: readonly SourcedSlice[],
  rule: LocalityRule,
  family: AddressFamily,
  place: NodePlace,
): Backends {
  const { ready, lastResort } = candidates(port, slices, family)
  const near = (locality: Locality, from: readonly Candidate[]): readonly Candidate[] =>
    from.filter(({ endpoint, cluster }) => isNear(locality, endpoint, cluster, place))
  const all = ready.length > 0 ? ready : lastResort
  const choices =
    rule.kind === 'node'
      ? [near('node', ready), near('node', lastResort)]
      : [...rule.order.map((locality) => near(locality, ready)), all]
  const chosen = choices.find((some) => some.length > 0) ?? []
  const backends = [...new Set(chosen.map(({ target }) => target))].sort().map((target) => ({ target, weight: 1 }))
  return { backends, elsewhere: chosen.length === 0 && all.length > 0 }
}

interface Candidate {
  readonly target: string
  readonly endpoint: SliceEndpoint
  readonly cluster: string
}

/**
 * Uses only slices that have the port by name and protocol. A cluster exposes a port in this way, and the merge has
 * removed the ports that it does not expose.
 */
function candidates(
  port: ImportPort,
  slices: readonly SourcedSlice[],
  family: AddressFamily,
): { readonly ready: readonly Candidate[]; readonly lastResort: readonly Candidate[] } {
  const ready: Candidate[] = []
  const lastResort: Candidate[] = []
  for (const { slice, cluster } of slices) {
    const targetPort = slice.ports?.find((p) => isSamePort(p, port))?.port
    if (targetPort === undefined || !isPortNumber(targetPort)) continue
    for (const endpoint of slice.endpoints ?? []) {
      const into = isReady(endpoint) ? ready : isServingOut(endpoint) ? lastResort : undefined
      if (into === undefined) continue
      for (const text of endpoint.addresses) {
        const address = family.podAddress(text)
        if (address !== undefined) into.push({ target: `${address} . ${targetPort}`, endpoint, cluster })
      }
    }
  }
  return { ready, lastResort }
}

function isSamePort(p: EndpointPort, port: ImportPort): boolean {
  return (p.name ?? '') === (port.name ?? '') && (p.protocol ?? 'TCP') === port.protocol
}

// In discovery.k8s.io/v1, an absent value counts as ready.
function isReady(endpoint: SliceEndpoint): boolean {
  return endpoint.conditions?.ready !== false
}

function isServingOut(endpoint: SliceEndpoint): boolean {
  return endpoint.conditions?.serving === true && endpoint.conditions.terminating === true
}

function isPortNumber(port: number): boolean {
  return Number.isInteger(port) && port >= 1 && port <= 65535
}
