/** Plans the backends of each port of one imported service. Pure. */
import type { Prefix } from '../../model/addresses/addresses.ts'
import {
  type EndpointSlice,
  type ImportPort,
  LABEL_SOURCE_CLUSTER,
  type Protocol,
  type ServiceImport,
  type ServiceImportSpec,
  type SliceEndpoint,
} from '../../model/model.ts'
import { isPortNumber, portId, targetPorts } from '../../model/services/services.ts'
import { type AddressFamily, addressFamily } from '../world/world.ts'
import { leaveOut } from './plan-passive-health.ts'

/**
 * Backends become slots: a service port owns N slots, each slot names one backend, and a connection draws a slot. Pure
 * and deterministic.
 */

/** Slots of a service port with session affinity and few backends: enough that each backend gets some. */
export const AFFINITY_SLOTS = 64
/** With more backends than this, a port with session affinity has one slot for each. */
const MAX_SCORED = 128
/**
 * Most slots of all ports of a service together, for one address. Each is an element of the node's table, and a service
 * of 20,000 ports and 1,000 endpoints would have twenty million. If there are more, each port has fewer slots, and each
 * node uses its own backends for them.
 */
export const MAX_SERVICE_SLOTS = 65_536

/** Most slots of each port of a service that has so many ports. */
export function mostSlots(ports: number): number {
  return Math.max(1, Math.floor(MAX_SERVICE_SLOTS / Math.max(1, ports)))
}

/**
 * Slots for connections that draw one at random: one for each backend (`244.1.0.9 . 8080`), at most `most`. `seed` (the
 * node's name) selects the backends if there are more than `most`, so that the nodes together use all of them.
 */
export function randomSlots(backends: readonly string[], seed: string, most = MAX_SERVICE_SLOTS): readonly string[] {
  if (backends.length <= most) return backends
  const ranked = backends.map((backend) => ({ backend, rank: hash(`${seed} ${addressOf(backend)}`) }))
  ranked.sort((a, b) => a.rank - b.rank || (a.backend < b.backend ? -1 : 1))
  const chosen = new Set(ranked.slice(0, most).map((r) => r.backend))
  return backends.filter((backend) => chosen.has(backend))
}

/**
 * Slots for connections whose client address picks the slot. Each slot takes the backend with the highest score
 * (rendezvous hashing), and each backend has one at least. So a backend that is removed moves its own clients and few
 * others, and a new one takes its share evenly from all. With few slots, there are fewer backends too. Many backends have one slot each,
 * and a change among them moves the clients that are not remembered.
 */
export function clientSlots(backends: readonly string[], seed: string, most = MAX_SERVICE_SLOTS): readonly string[] {
  const used = randomSlots(backends, seed, most < 4 * AFFINITY_SLOTS ? Math.max(1, most >> 2) : most)
  if (used.length === 0 || used.length > MAX_SCORED) return used
  const count = Math.min(most, used.length * 2 > AFFINITY_SLOTS ? 4 * AFFINITY_SLOTS : AFFINITY_SLOTS)
  const slots = Array.from({ length: count }, (_, slot) => {
    let best = used[0] ?? ''
    let bestScore = -1
    for (const backend of used) {
      const score = hash(`${addressOf(backend)} ${slot}`)
      if (score > bestScore) [best, bestScore] = [backend, score]
    }
    return best
  })
  return withAll(slots, used)
}

/** Gives a slot to each backend that won none, from those that have several. */
function withAll(slots: readonly string[], used: readonly string[]): readonly string[] {
  const counts = new Map<string, number>()
  for (const backend of slots) counts.set(backend, (counts.get(backend) ?? 0) + 1)
  const missing = used.filter((backend) => !counts.has(backend))
  return slots.map((backend) => {
    const count = counts.get(backend) ?? 0
    const other = count > 1 ? missing.pop() : undefined
    if (other !== undefined) counts.set(backend, count - 1)
    return other ?? backend
  })
}

/** The slots of one cluster, if clusters have shares of their own. */
export interface ShareOfSlots {
  /** The number of this part among those of the port. A part keeps its number while the same clusters export. */
  readonly part: number
  /** How many slots of the plan are of this part. The parts follow each other in the list of slots. */
  readonly size: number
  /** A whole number above 0, in proportion to those of the other parts. */
  readonly share: number
}

/** The number of a slot has 32 bits, of which 16 are for the part. */
const MAX_PARTS = 65_536

/** Shares that differ from those of plain slots by less are not worth a draw. */
const NEGLIGIBLE = 0.0005

/**
 * Whole numbers from 1 in proportion to the weights, with a sum of `steps`, or a smaller sum of at most ten if that is
 * exact. Rounding takes from the largest, which loses least by it. Takes at most `steps` weights above 0.
 */
export function wholeShares(weights: readonly number[], steps: number): number[] {
  const divisor = weights.reduce(gcd, 0)
  const total = weights.reduce((sum, w) => sum + w, 0)
  if (total / divisor <= 10) return weights.map((w) => w / divisor)
  const shares = weights.map((w) => Math.max(1, Math.floor((w / total) * steps)))
  let left = steps - shares.reduce((sum, n) => sum + n, 0)
  const order = weights.map((w, i) => ({ i, w, rest: ((w / total) * steps) % 1 }))
  order.sort((a, b) => b.rest - a.rest || b.w - a.w || a.i - b.i)
  for (const { i } of order) {
    if (left <= 0) break
    shares[i] = (shares[i] ?? 0) + 1
    left -= 1
  }
  for (; left < 0; left += 1) {
    const largest = shares.reduce((best, n, i) => (n > (shares[best] ?? 0) ? i : best), 0)
    shares[largest] = (shares[largest] ?? 0) - 1
  }
  return shares
}

// Only the address is hashed, so that all ports of a service lead a client to the same pod.
function addressOf(target: string): string {
  const end = target.indexOf(' ')
  return end < 0 ? target : target.slice(0, end)
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b)
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
  /** The port of all backends. Undefined: they differ, or the service has many ports. */
  readonly targetPort?: number
  /** First a cluster is drawn by these shares, then a slot of it. Absent: all slots alike. */
  readonly shares?: readonly ShareOfSlots[]
  /** Only with `client`: for so many seconds without a new connection a client keeps its backend. */
  readonly affinitySeconds?: number
  /**
   * Only without slots: there are backends, but this node may use none of them. Connections are dropped, not refused.
   */
  readonly dropped?: true
  /** Targets to which open connections are ended, in the form of the slots. None of them is a slot. */
  readonly ended?: readonly string[]
  /** Only without slots, and with `ended`: no service has the port any more (withdrawn.ts). */
  readonly withdrawn?: true
}

/**
 * A share in 1/10,000 for each cluster, by id. A cluster without one, or with 0, gets nothing new while another that has
 * a share has an endpoint. If all are 0, connections are refused.
 */
export type ClusterShares = ReadonlyMap<string, number>

/** How the connections of one service are divided. */
export interface ServiceTraffic {
  readonly clusterShares?: ClusterShares
  /** The shares of the ports that have others, by portId(). Ports with equal shares have the same object. */
  readonly portShares?: ReadonlyMap<string, ClusterShares>
  /** Overrides the session affinity of the export: for so many seconds a client keeps its backend. */
  readonly affinitySeconds?: number
  /** Targets that refuse or do not answer are left out. */
  readonly passiveHealth?: boolean
  /** Clusters to which open connections are ended, by endedClusters(). */
  readonly ended?: ReadonlySet<string>
  /**
   * The targets, by watchedName(), that count as not ready for this node, in the order in which they failed: at
   * most half of those of a port whose clusters have a share.
   */
  readonly leftOut?: ReadonlySet<string>
}

/** The shares of one port. Undefined: all its endpoints count alike. */
export function sharesFor(
  { portShares, clusterShares }: { readonly [K in 'portShares' | 'clusterShares']?: ServiceTraffic[K] | undefined },
  port: ImportPort,
): ClusterShares | undefined {
  return portShares?.get(portId(port)) ?? clusterShares
}

/** The node's name also seeds the choice among more backends than slots. */
export interface ServiceContext extends NodePlace {
  /** Its family is the one that is planned: the addresses of the service and the slices. */
  readonly clustersetIpRange: Prefix
  /** Clusters that answer. Undefined while this is not known; then all clusters count. */
  readonly reachable: ReadonlySet<string> | undefined
}

/** The Kubernetes default of sessionAffinityConfig.clientIP.timeoutSeconds, and its maximum. */
const AFFINITY_SECONDS = 10_800
const MAX_AFFINITY_SECONDS = 86_400

/**
 * Port plans by map key, `245.0.0.7 . tcp . 80`. Empty for a headless service and for one without an address. Without
 * `traffic.clusterShares`, all endpoints count alike.
 */
export function planService(
  service: ServiceImport,
  slices: readonly EndpointSlice[],
  context: ServiceContext,
  traffic: ServiceTraffic = {},
): ReadonlyMap<string, PortPlan> {
  const plans = new Map<string, PortPlan>()
  const family = addressFamily(context.clustersetIpRange.family)
  const addresses = clustersetIps(service, family, context)
  if (addresses.length === 0) return plans
  const ports = service.spec.ports.filter(({ port }) => isPortNumber(port))
  const { clusterShares, portShares } = traffic
  const affinity = traffic.affinitySeconds ?? affinitySeconds(service.spec)
  const choices = new BackendChoices(groupSlices(slices, family, context), {
    rule: localityRule(service.spec),
    pick: affinity === undefined ? 'random' : 'client',
    most: mostSlots(ports.length),
    shareSteps: () =>
      clusterShares === undefined ? 1 : shareSteps(ports.length, [clusterShares, ...distinct(portShares)]),
    affinitySeconds: affinity,
    fewPorts: ports.length <= MOST_CHAINS,
    clusterShares,
    portShares,
    leftOut: traffic.leftOut === undefined ? NONE_BY_PORT : addressesByPort(traffic.leftOut),
    family,
    place: context,
  })
  const ended =
    traffic.ended === undefined || traffic.ended.size === 0
      ? undefined
      : new EndedTargets(slices, { ended: traffic.ended, most: mostSlots(ports.length), family, context })
  for (const port of ports) {
    const planned = choices.plan(port)
    const plan = ended?.addTo(planned, port) ?? planned
    for (const address of addresses) plans.set(portKey(address, port.protocol, port.port), plan)
  }
  return plans
}

/**
 * The ports of a service that has gone, by map key as those of planService(), with all their targets in these slices.
 * Without UDP, which has no connections.
 */
export function openTargets(
  service: ServiceImport,
  slices: readonly EndpointSlice[],
  context: ServiceContext,
): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, readonly string[]>()
  const family = addressFamily(context.clustersetIpRange.family)
  const addresses = clustersetIps(service, family, context)
  const ports = service.spec.ports.filter(({ port, protocol }) => isPortNumber(port) && protocol !== 'UDP')
  if (addresses.length === 0 || ports.length === 0) return found
  const clusters = new Set(slices.flatMap(({ metadata: { labels } }) => labels?.[LABEL_SOURCE_CLUSTER] ?? []))
  const ended = new EndedTargets(slices, { ended: clusters, most: mostSlots(ports.length), family, context })
  for (const port of ports) {
    const targets = ended.all(port)
    if (targets.length === 0) continue
    for (const address of addresses) found.set(portKey(address, port.protocol, port.port), targets)
  }
  return found
}

function clustersetIps(
  { spec }: ServiceImport,
  family: AddressFamily,
  { clustersetIpRange }: ServiceContext,
): readonly string[] {
  if (spec.type !== 'ClusterSetIP') return []
  const isInRange = family.within([clustersetIpRange])
  return (spec.ips ?? []).flatMap((text) => clustersetIp(text, family, isInRange))
}

const MOST_CHAINS = 64
const NONE: ReadonlySet<string> = new Set()
const NONE_BY_PORT: ReadonlyMap<string, readonly string[]> = new Map()

/** What follows the target in the name of one that is left out for UDP: its TCP port of that number may be well. */
const UDP_MARK = ' . udp'

/** The name of a target among those that are left out: `244.1.0.9 . 8080`, or `244.1.0.9 . 8080 . udp`. */
export function watchedName(target: string, portKey: string): string {
  return portKey.includes(' . udp . ') ? `${target}${UDP_MARK}` : target
}

/** The addresses of targets by their port (`8080` or `8080 . udp`), in the same order. */
function addressesByPort(targets: ReadonlySet<string>): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>()
  for (const target of targets) {
    const [address = '', ...rest] = target.split(' . ')
    const port = rest.join(' . ')
    const those = found.get(port)
    if (those === undefined) found.set(port, [address])
    else those.push(address)
  }
  return found
}

/** The port of `244.1.0.9 . 8080` and all others. Takes the ports of their groups of slices too. */
function commonPort(ofGroups: readonly (number | undefined)[], targets: readonly string[]): number | undefined {
  if (ofGroups.length === 1) return ofGroups[0]
  const portOf = (target: string): string => target.slice(target.lastIndexOf(' ') + 1)
  const [first] = targets
  if (first === undefined) return undefined
  const port = portOf(first)
  return targets.every((target) => portOf(target) === port) ? Number(port) : undefined
}

/** The draws of a service are bounded like its slots: the more ports it has, the coarser are the shares. */
function shareSteps(ports: number, all: readonly ClusterShares[]): number {
  const given = (one: ClusterShares): number => [...one.values()].filter((share) => share > 0).length
  const others = Math.max(...all.map(given)) - 1
  // Each cluster leaves one number in ten over to the next draw at most.
  const draws = (steps: number): number => 10 + (steps > 10 ? 10 * Math.min(10, others) : 0)
  const elements = (steps: number): number => draws(steps) + (steps > 100 ? 10 * Math.min(100, others) : 0)
  return [1000, 100, 10].find((steps) => ports * elements(steps) <= MAX_SERVICE_SLOTS) ?? 1
}

function distinct(portShares: ServiceTraffic['portShares']): readonly ClusterShares[] {
  return portShares === undefined ? [] : [...new Set(portShares.values())]
}

function affinitySeconds({ sessionAffinity, sessionAffinityConfig }: ServiceImportSpec): number | undefined {
  if (sessionAffinity !== 'ClientIP') return undefined
  const seconds = sessionAffinityConfig?.clientIP?.timeoutSeconds ?? AFFINITY_SECONDS
  return Number.isInteger(seconds) && seconds >= 1 && seconds <= MAX_AFFINITY_SECONDS ? seconds : AFFINITY_SECONDS
}

/** The key of a port in the form that nft prints: `245.0.0.7 . tcp . 80`. */
export function portKey(address: string, protocol: Protocol, port: number): string {
  return `${address} . ${protocol.toLowerCase()} . ${port}`
}

function clustersetIp(text: string, family: AddressFamily, isInRange: (address: string) => boolean): string[] {
  const address = family.canonical(text)
  return address !== undefined && isInRange(address) ? [address] : []
}

// A service may have thousands of ports and of endpoints. Slices with equal ports are one group, and all ports that the
// same groups have get their backends from one choice.

interface SliceGroup {
  /** Target ports by protocol and name. Uses only slices that have a port by name and protocol. */
  readonly targets: ReadonlyMap<string, number>
  readonly slices: { readonly slice: EndpointSlice; readonly cluster: string }[]
  /** The number of endpoints in these slices. */
  endpoints: number
}

/**
 * Groups the slices of the family whose cluster is reachable. A cluster exposes a port by name and protocol, and the
 * merge has removed the ports that it does not expose.
 */
function groupSlices(
  slices: readonly EndpointSlice[],
  family: AddressFamily,
  context: ServiceContext,
): readonly SliceGroup[] {
  const groups = new Map<string, SliceGroup>()
  for (const slice of slices) {
    const cluster = slice.metadata.labels?.[LABEL_SOURCE_CLUSTER]
    if (cluster === undefined || slice.addressType !== family.slices) continue
    if (context.reachable !== undefined && !context.reachable.has(cluster)) continue
    const endpoints = slice.endpoints?.length ?? 0
    if (slices.length === 1) return [{ targets: targetPorts(slice), slices: [{ slice, cluster }], endpoints }]
    const key = JSON.stringify((slice.ports ?? []).map(({ name, protocol, port }) => [name, protocol, port]))
    let group = groups.get(key)
    if (group === undefined) groups.set(key, (group = { targets: targetPorts(slice), slices: [], endpoints: 0 }))
    group.slices.push({ slice, cluster })
    group.endpoints += endpoints
  }
  return [...groups.values()]
}

interface ChoiceInit {
  readonly rule: LocalityRule
  readonly pick: PortPlan['pick']
  /** Most slots of each port. */
  readonly most: number
  /** Shares of clusters are rounded to one of so many. 1: clusters with a share count alike. */
  readonly shareSteps: () => number
  readonly affinitySeconds: number | undefined
  /** The service has so few ports that each may have a chain of its own in the table. */
  readonly fewPorts: boolean
  readonly clusterShares: ClusterShares | undefined
  readonly portShares: ServiceTraffic['portShares']
  /** Addresses that are left out, by addressesByPort(). */
  readonly leftOut: ReadonlyMap<string, readonly string[]>
  readonly family: AddressFamily
  readonly place: ServiceContext
}

/** The backends of ports that the same groups of slices have. */
interface Choice {
  readonly groups: readonly SliceGroup[]
  /** One part, or one for each cluster that has a share. */
  readonly parts: readonly ChoicePart[]
  /** There are backends, but this node may use none of them. */
  readonly elsewhere: boolean
}

interface ChoicePart extends Omit<ShareOfSlots, 'size'> {
  /** Each by inGroup(). */
  readonly slots: readonly string[]
}

/**
 * Most endpoints that are looked at for the ports of a service together. A hostile member can make the groups of each
 * port different; later ports then use the endpoints of one group.
 */
const MAX_ENDPOINTS_READ = 1_000_000

class BackendChoices {
  readonly #groups: readonly SliceGroup[]
  readonly #init: ChoiceInit
  /** Indexes of the groups that have a port, by protocol and name. */
  readonly #serving = new Map<string, number[]>()
  /** By the indexes of the groups, and the shares. */
  readonly #known = new Map<string, Choice>()
  readonly #sharesIds = new Map<ClusterShares | undefined, number>()
  #read = 0

  constructor(groups: readonly SliceGroup[], init: ChoiceInit) {
    this.#groups = groups
    this.#init = init
    for (const [index, { targets }] of groups.entries()) {
      for (const [key, target] of targets) {
        if (!isPortNumber(target)) continue
        const serving = this.#serving.get(key)
        if (serving === undefined) this.#serving.set(key, [index])
        else serving.push(index)
      }
    }
  }

  plan(port: ImportPort): PortPlan {
    const { pick, affinitySeconds } = this.#init
    const key = portId(port)
    const serving = this.#serving.get(key) ?? []
    const { groups, parts, elsewhere } = this.#choice(serving, port)
    const portsOfGroups = groups.map(({ targets }) => targets.get(key))
    const shares: ShareOfSlots[] = []
    const slots: string[] = []
    for (const { part, share, slots: some } of parts) {
      const targets = some.map((slot) => `${addressOf(slot)} . ${portsOfGroups[groupOf(slot)]}`)
      // An endpoint may be in slices of two groups that have the same target port.
      const unique = pick === 'random' && groups.length > 1 ? [...new Set(targets)] : targets
      shares.push({ part, size: unique.length, share })
      for (const target of unique) slots.push(target)
    }
    const targetPort = this.#init.fewPorts && slots.length > 0 ? commonPort(portsOfGroups, slots) : undefined
    return {
      pick,
      slots,
      ...(targetPort === undefined ? {} : { targetPort }),
      ...(shares.length > 1 ? { shares } : {}),
      ...(affinitySeconds === undefined ? {} : { affinitySeconds }),
      ...(elsewhere ? { dropped: true } : {}),
    }
  }

  #choice(serving: readonly number[], port: ImportPort): Choice {
    const out = port.protocol === 'SCTP' ? [] : this.#leftOut(serving, port)
    const clusterShares = sharesFor(this.#init, port)
    const signature = [this.#sharesId(clusterShares), serving.join(), ...out].join(';')
    const known = this.#known.get(signature)
    if (known !== undefined) return known
    const groups = serving.map((index) => this.#groups[index] as SliceGroup)
    const endpoints = groups.reduce((sum, group) => sum + group.endpoints, 0)
    if (groups.length > 1 && this.#read + endpoints > MAX_ENDPOINTS_READ) return this.#choice(serving.slice(0, 1), port)
    this.#read += endpoints
    const choice = chooseBackends(groups, { ...this.#init, clusterShares }, out)
    this.#known.set(signature, choice)
    return choice
  }

  #sharesId(clusterShares: ClusterShares | undefined): number {
    const id = this.#sharesIds.get(clusterShares) ?? this.#sharesIds.size
    this.#sharesIds.set(clusterShares, id)
    return id
  }

  /** What is left out, by inGroup() with the index in `serving`: in each group, what failed first comes first. */
  #leftOut(serving: readonly number[], port: ImportPort): readonly string[] {
    const { leftOut } = this.#init
    if (leftOut.size === 0) return []
    const key = portId(port)
    const mark = port.protocol === 'UDP' ? UDP_MARK : ''
    return serving.flatMap((index, i) => {
      const target = this.#groups[index]?.targets.get(key)
      return (
        (target === undefined ? undefined : leftOut.get(`${target}${mark}`))?.map((address) => inGroup(address, i)) ??
        []
      )
    })
  }
}

interface EndedInit {
  readonly ended: ReadonlySet<string>
  /** Most targets of each port. A hostile member may drain a service of many ports and endpoints. */
  readonly most: number
  readonly family: AddressFamily
  readonly context: ServiceContext
}

/** Some of the addresses in a group of slices: enough for any one port. */
interface EndedGroup extends Pick<SliceGroup, 'targets'> {
  readonly clusters: ReadonlyMap<string, readonly string[]>
}

/** The targets to which open connections are ended. */
class EndedTargets {
  /** Also those of clusters that do not answer, because a client waits for these in vain. */
  readonly #groups: readonly EndedGroup[]
  readonly #most: number

  constructor(slices: readonly EndpointSlice[], { ended, most, family, context }: EndedInit) {
    const those = slices.filter(({ metadata: { labels } }) => ended.has(labels?.[LABEL_SOURCE_CLUSTER] ?? ''))
    this.#groups = groupSlices(those, family, { ...context, reachable: undefined }).map((group) => ({
      targets: group.targets,
      clusters: someAddresses(group, family, most),
    }))
    this.#most = most
  }

  /**
   * The plan with its ended targets, or the same one. A cluster of which the plan still uses a target has none. If
   * nothing takes new calls of the port here, none are ended: a client could only call the same endpoint again.
   */
  addTo(plan: PortPlan, port: ImportPort): PortPlan {
    if (plan.slots.length === 0) return plan
    const byCluster = this.#targets(port)
    if (byCluster.size === 0) return plan
    const slots = new Set(plan.slots)
    const clusters = [...byCluster.values()].filter((targets) => !targets.some((target) => slots.has(target)))
    const ended = [...new Set(clusters.flat())].sort()
    return ended.length === 0 ? plan : { ...plan, ended }
  }

  /** All of them, sorted. */
  all(port: ImportPort): readonly string[] {
    return [...new Set([...this.#targets(port).values()].flat())].sort()
  }

  #targets(port: ImportPort): ReadonlyMap<string, readonly string[]> {
    const key = portId(port)
    const found = new Map<string, string[]>()
    let left = this.#most
    for (const { targets, clusters } of this.#groups) {
      const target = targets.get(key)
      if (target === undefined) continue
      for (const [cluster, addresses] of clusters) {
        if (left === 0) return found
        const some = addresses.slice(0, left)
        left -= some.length
        const those = found.get(cluster) ?? []
        for (const address of some) those.push(`${address} . ${target}`)
        found.set(cluster, those)
      }
    }
    return found
  }
}

/** At most `most` usable addresses of the group, by cluster. A cluster without one is left out. */
function someAddresses(
  { slices }: SliceGroup,
  family: AddressFamily,
  most: number,
): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>()
  let left = most
  for (const { slice, cluster } of slices) {
    for (const { addresses } of slice.endpoints ?? []) {
      for (const text of addresses) {
        if (left === 0) return found
        const address = family.podAddress(text)
        if (address === undefined) continue
        left -= 1
        const those = found.get(cluster)
        if (those === undefined) found.set(cluster, [address])
        else those.push(address)
      }
    }
  }
  return found
}

/** An address with the index of its group of slices. Most services have one group, and no other text for it. */
function inGroup(address: string, index: number): string {
  return index === 0 ? address : `${address} . ${index}`
}

function groupOf(target: string): number {
  const end = target.indexOf(' ')
  return end < 0 ? 0 : Number(target.slice(end + 3))
}

interface Candidate {
  /** By inGroup(). */
  readonly target: string
  readonly endpoint: SliceEndpoint
  readonly cluster: string
}

/**
 * Ready endpoints, and only the nearest ones if the rule asks for it. If there is none, terminating endpoints that
 * still serve, wherever they are. If the rule allows only this node, both are searched on this node alone. All this
 * works as in kube-proxy.
 */
function chooseBackends(groups: readonly SliceGroup[], init: ChoiceInit, leftOut: readonly string[]): Choice {
  const { rule, place, pick, most, clusterShares } = init
  const { ready: reported, lastResort } = candidates(groups, init.family)
  // Most services have neither a policy nor a preference.
  if (rule === ALL && clusterShares === undefined && leftOut.length === 0)
    return together(groups, reported.length > 0 ? reported : lastResort, init)
  const usual = reported.length > 0 ? reported : lastResort
  // Where one cluster has all of it, and a share, there is nothing to draw.
  if (rule === ALL && leftOut.length === 0 && isOfOneWithShare(usual, clusterShares))
    return together(groups, usual, init)
  const near = (locality: Locality, from: readonly Candidate[]): readonly Candidate[] =>
    from.filter(({ endpoint, cluster }) => isNear(locality, endpoint, cluster, place))
  const limiting = (): readonly Candidate[] =>
    withShare(rule.kind === 'node' ? near('node', reported) : reported, clusterShares)
  const out = leftOut.length === 0 ? NONE : leaveOut(new Set(limiting().map(({ target }) => target)), leftOut)
  const ready = out.size === 0 ? reported : reported.filter(({ target }) => !out.has(target))
  const nearest = (from: readonly Candidate[], tier: readonly Candidate[]): readonly Candidate[] => {
    if (rule.kind === 'node') return near('node', from)
    const choices = tier === lastResort ? [] : rule.order.map((one) => near(one, from))
    return choices.find((some) => some.length > 0) ?? from
  }
  const tiers = rule.kind === 'node' || ready.length === 0 ? [ready, lastResort] : [ready]
  const all = ready.length > 0 ? ready : lastResort
  if (clusterShares !== undefined && ![...clusterShares.values()].some((share) => share > 0))
    return { groups, parts: [], elsewhere: false }
  const partsOf = (tier: readonly Candidate[]): readonly ClusterPart[] =>
    clusterShares === undefined ? [] : byShare(tier, (some) => nearest(some, tier), clusterShares)
  const readyParts = partsOf(ready)
  // Ready ones without a share, such as those of a cluster that egress rules shut, do not hide those that have one.
  const drawn = readyParts.length > 0 ? readyParts : partsOf(lastResort)
  if (drawn.length > 0) {
    const count = drawn.reduce((sum, { targets }) => sum + targets.length, 0)
    const shares = wholeSharesOf(drawn, count, init.shareSteps)
    if (shares === undefined) {
      const targets = drawn.flatMap((one) => one.targets)
      return { groups, parts: [onePart(targets, init)], elsewhere: false }
    }
    const parts = drawn.map(({ part, targets }, i): ChoicePart => {
      const ofPart = Math.max(1, Math.floor((most * targets.length) / count))
      // Random slots are as many as backends, and those that the address of a client picks may be more.
      const atMost = pick === 'random' && count <= most ? most : ofPart
      return { part, share: shares[i] ?? 1, slots: slotsOf(pick, targets, place.node, atMost) }
    })
    return { groups, parts, elsewhere: false }
  }
  const chosen = tiers.map((tier) => nearest(tier, tier)).find((some) => some.length > 0) ?? []
  return { ...together(groups, chosen, init), elsewhere: chosen.length === 0 && all.length > 0 }
}

/** All of them alike. */
function together(groups: readonly SliceGroup[], chosen: readonly Candidate[], init: ChoiceInit): Choice {
  const targets = chosen.map(({ target }) => target)
  return { groups, parts: targets.length === 0 ? [] : [onePart(targets, init)], elsewhere: false }
}

function onePart(targets: readonly string[], { pick, most, place }: ChoiceInit): ChoicePart {
  const sorted = [...targets].sort()
  const unique = sorted.filter((target, i) => target !== sorted[i - 1])
  return { part: 0, share: 1, slots: slotsOf(pick, unique, place.node, most) }
}

function slotsOf(pick: PortPlan['pick'], targets: readonly string[], seed: string, most: number): readonly string[] {
  return pick === 'client' ? clientSlots(targets, seed, most) : randomSlots(targets, seed, most)
}

interface ClusterPart {
  readonly part: number
  readonly weight: number
  readonly targets: readonly string[]
}

/**
 * The backends of each cluster that has a share, the nearest ones of each. Clusters without any are left out. Clusters
 * with share 0 have numbers too, so that the others keep theirs when a share comes or goes.
 */
function byShare(
  from: readonly Candidate[],
  nearest: (from: readonly Candidate[]) => readonly Candidate[],
  clusterShares: ClusterShares,
): readonly ClusterPart[] {
  const byCluster = new Map<string, Candidate[]>()
  for (const one of from) {
    const those = byCluster.get(one.cluster)
    if (those === undefined) byCluster.set(one.cluster, [one])
    else those.push(one)
  }
  return numberedShares(clusterShares).flatMap(([cluster, weight], part) => {
    if (weight === 0) return []
    const targets = [...new Set(nearest(byCluster.get(cluster) ?? []).map(({ target }) => target))].sort()
    return targets.length === 0 ? [] : [{ part, weight, targets }]
  })
}

/** The shares, sorted by cluster. Most services of a policy have the same object. */
const NUMBERED = new WeakMap<ClusterShares, readonly (readonly [cluster: string, share: number])[]>()

function numberedShares(clusterShares: ClusterShares): readonly (readonly [cluster: string, share: number])[] {
  let numbered = NUMBERED.get(clusterShares)
  if (numbered === undefined) {
    numbered = [...clusterShares].sort(([a], [b]) => (a < b ? -1 : 1)).slice(0, MAX_PARTS)
    NUMBERED.set(clusterShares, numbered)
  }
  return numbered
}

function isOfOneWithShare(backends: readonly Candidate[], clusterShares: ClusterShares | undefined): boolean {
  const [first] = backends
  if (first === undefined || (clusterShares?.get(first.cluster) ?? 0) === 0) return false
  return backends.every(({ cluster }) => cluster === first.cluster)
}

/**
 * Those of which at most half are left out. Clusters without a share take no place in it: what is left out would else
 * be all that has a share, and the connections would go past the policy.
 */
function withShare<T extends { readonly cluster: string }>(
  ready: readonly T[],
  clusterShares: ClusterShares | undefined,
): readonly T[] {
  const those = ready.filter(({ cluster }) => (clusterShares?.get(cluster) ?? 0) > 0)
  return those.length === 0 ? ready : those
}

/** Undefined if plain slots come to these shares, or if there are too many ports or clusters for shares. */
function wholeSharesOf(
  drawn: readonly ClusterPart[],
  count: number,
  shareSteps: () => number,
): readonly number[] | undefined {
  if (drawn.length < 2) return undefined
  const steps = shareSteps()
  if (drawn.length > steps) return undefined
  const total = drawn.reduce((sum, { weight }) => sum + weight, 0)
  const isPlain = drawn.every(({ weight, targets }) => Math.abs(weight / total - targets.length / count) <= NEGLIGIBLE)
  return isPlain
    ? undefined
    : wholeShares(
        drawn.map(({ weight }) => weight),
        steps,
      )
}

function candidates(
  groups: readonly SliceGroup[],
  family: AddressFamily,
): { readonly ready: readonly Candidate[]; readonly lastResort: readonly Candidate[] } {
  const ready: Candidate[] = []
  const lastResort: Candidate[] = []
  for (const [index, { slices }] of groups.entries()) {
    for (const { slice, cluster } of slices) {
      for (const endpoint of slice.endpoints ?? []) {
        const into = isReady(endpoint) ? ready : isServingOut(endpoint) ? lastResort : undefined
        if (into === undefined) continue
        for (const text of endpoint.addresses) {
          const address = family.podAddress(text)
          if (address !== undefined) into.push({ target: inGroup(address, index), endpoint, cluster })
        }
      }
    }
  }
  return { ready, lastResort }
}

/**
 * The ready targets of a port that this node may use, those that are left out included, in the form that nft prints: of
 * these at most half are left out. If ready ones are in clusters with a share, only those.
 */
export function readyTargets(
  { spec }: Pick<ServiceImport, 'spec'>,
  port: ImportPort,
  slices: readonly EndpointSlice[],
  { clusterShares, ...context }: ServiceContext & Pick<ServiceTraffic, 'clusterShares'>,
): ReadonlySet<string> {
  const family = addressFamily(context.clustersetIpRange.family)
  const onlyHere = localityRule(spec).kind === 'node'
  const key = portId(port)
  const found: { readonly target: string; readonly cluster: string }[] = []
  for (const { targets, slices: grouped } of groupSlices(slices, family, context)) {
    const target = targets.get(key)
    if (target === undefined) continue
    for (const { slice, cluster } of grouped) {
      for (const endpoint of slice.endpoints ?? []) {
        if (!isReady(endpoint) || (onlyHere && !isNear('node', endpoint, cluster, context))) continue
        for (const text of endpoint.addresses) {
          const address = family.podAddress(text)
          if (address !== undefined) found.push({ target: `${address} . ${target}`, cluster })
        }
      }
    }
  }
  return new Set(withShare(found, clusterShares).map(({ target }) => target))
}

/**
 * The targets of a port that serve, ready or not, wherever they are, in the form that nft prints. A flow to any of them
 * goes on, as in kube-proxy: policies, zones and the choice of slots are about new flows. An endpoint of a cluster that
 * does not answer counts only while no other endpoint takes its place, because an unreachable one may come back.
 */
export function servingTargets(
  port: ImportPort,
  slices: readonly EndpointSlice[],
  context: ServiceContext,
): ReadonlySet<string> {
  const family = addressFamily(context.clustersetIpRange.family)
  const key = portId(port)
  const of = (reachable: ServiceContext['reachable']): Set<string> => {
    const found = new Set<string>()
    for (const { targets, slices: grouped } of groupSlices(slices, family, { ...context, reachable })) {
      const target = targets.get(key)
      if (target === undefined) continue
      for (const { slice } of grouped) {
        for (const endpoint of slice.endpoints ?? []) {
          if (!isServing(endpoint)) continue
          for (const text of endpoint.addresses) {
            const address = family.podAddress(text)
            if (address !== undefined) found.add(`${address} . ${target}`)
          }
        }
      }
    }
    return found
  }
  const answering = of(context.reachable)
  return answering.size > 0 ? answering : of(undefined)
}

/** As kube-proxy: an absent value counts as serving if the endpoint is ready. */
function isServing({ conditions }: SliceEndpoint): boolean {
  return conditions?.serving ?? conditions?.ready !== false
}

// In discovery.k8s.io/v1, an absent value counts as ready.
function isReady(endpoint: SliceEndpoint): boolean {
  return endpoint.conditions?.ready !== false
}

function isServingOut(endpoint: SliceEndpoint): boolean {
  return endpoint.conditions?.serving === true && endpoint.conditions.terminating === true
}
