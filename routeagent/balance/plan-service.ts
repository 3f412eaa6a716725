/** One imported service: which backends each of its ports leads to. Pure. */
import type { Prefix } from '../../model/addresses/ip.ts'
import type {
  EndpointPort,
  EndpointSlice,
  ImportPort,
  Protocol,
  ServiceImport,
  SliceEndpoint,
} from '../../model/objects.ts'
import { LABEL_SOURCE_CLUSTER } from '../../model/spec-constants.ts'
import { type AddressFamily, addressFamily } from '../address-family.ts'
import { type LocalityRule, type Locality, type NodePlace, isNear, localityRule } from './plan-locality.ts'
import { type WeightedBackend, clientSlots, randomSlots } from './plan-slots.ts'

/** What becomes of connections to one (clusterset IP, protocol, port). */
export interface PortPlan {
  /** How a connection gets its slot: anew at random, or always the same for a client address. */
  readonly pick: 'random' | 'client'
  /** Backends as nft writes them, `244.1.0.9 . 8080`; empty: connections are refused. */
  readonly slots: readonly string[]
  /** Only without slots: there are backends, but none that this node may use. Connections are dropped, not refused. */
  readonly dropped?: true
}

/** The node's name also seeds the choice among more than 256 backends. */
export interface ServiceContext extends NodePlace {
  /** Its family is the one that is planned: its addresses of the service, its slices. */
  readonly clustersetIpRange: Prefix
  /** Clusters that answer; undefined while nobody knows: then all count. */
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

/** As nft writes it. */
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
 * Ready endpoints, the nearest ones where the rule asks for it; when there are none at all, those that still serve
 * while they terminate, wherever they are. Where only this node counts, both are looked for on this node alone. All as
 * kube-proxy does.
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
 * A slice counts only where it has the port by name and protocol: that is how a cluster exposes a port (the merge
 * took out what it does not expose).
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

// discovery.k8s.io/v1: absent counts as ready.
function isReady(endpoint: SliceEndpoint): boolean {
  return endpoint.conditions?.ready !== false
}

function isServingOut(endpoint: SliceEndpoint): boolean {
  return endpoint.conditions?.serving === true && endpoint.conditions.terminating === true
}

function isPortNumber(port: number): boolean {
  return Number.isInteger(port) && port >= 1 && port <= 65535
}
