/** One imported service: which backends each of its ports leads to. Pure. */
import type { Prefix } from '../model/ip.ts'
import type {
  EndpointPort,
  EndpointSlice,
  ImportPort,
  Protocol,
  ServiceImport,
  SliceEndpoint,
} from '../model/objects.ts'
import { LABEL_SOURCE_CLUSTER } from '../model/spec-constants.ts'
import { type Ipv4Range, inRange, ipv4Number, ipv4Range, isUsableIpv4 } from './ipv4-number.ts'
import { type WeightedBackend, clientSlots, randomSlots } from './plan-slots.ts'

/** What becomes of connections to one (clusterset IP, protocol, port). */
export interface PortPlan {
  /** How a connection gets its slot: anew at random, or always the same for a client address. */
  readonly pick: 'random' | 'client'
  /** Backends as nft writes them, `244.1.0.9 . 8080`; empty: connections are refused. */
  readonly slots: readonly string[]
}

export interface ServiceContext {
  /** Seeds the choice among more than 256 backends. */
  readonly node: string
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
  const range = ipv4Range(context.clustersetIpRange)
  const addresses = (service.spec.ips ?? []).flatMap((text) => clustersetIp(text, range))
  if (addresses.length === 0) return plans
  const reachable = slices.filter((slice) => slice.addressType === 'IPv4' && isReachable(slice, context))
  const pick = service.spec.sessionAffinity === 'ClientIP' ? 'client' : 'random'
  for (const port of service.spec.ports) {
    if (!isPortNumber(port.port)) continue
    const backends = portBackends(port, reachable)
    const slots = pick === 'client' ? clientSlots(backends, context.node) : randomSlots(backends, context.node)
    for (const address of addresses) plans.set(portKey(address, port.protocol, port.port), { pick, slots })
  }
  return plans
}

/** As nft writes it. */
export function portKey(address: string, protocol: Protocol, port: number): string {
  return `${address} . ${protocol.toLowerCase()} . ${port}`
}

function clustersetIp(text: string, range: Ipv4Range): string[] {
  const value = ipv4Number(text)
  return value !== undefined && inRange(range, value) ? [text] : []
}

function isReachable(slice: EndpointSlice, context: ServiceContext): boolean {
  const source = slice.metadata.labels?.[LABEL_SOURCE_CLUSTER]
  return source !== undefined && (context.reachable === undefined || context.reachable.has(source))
}

/**
 * Ready endpoints; when there are none at all, those that still serve while they terminate, as kube-proxy does.
 * A slice counts only where it has the port by name and protocol: that is how a cluster exposes a port (the merge
 * took out what it does not expose).
 */
function portBackends(port: ImportPort, slices: readonly EndpointSlice[]): WeightedBackend[] {
  const ready = new Set<string>()
  const lastResort = new Set<string>()
  for (const slice of slices) {
    const target = slice.ports?.find((p) => isSamePort(p, port))?.port
    if (target === undefined || !isPortNumber(target)) continue
    for (const endpoint of slice.endpoints ?? []) {
      const into = isReady(endpoint) ? ready : isServingOut(endpoint) ? lastResort : undefined
      if (into === undefined) continue
      for (const address of endpoint.addresses) if (isPodAddress(address)) into.add(`${address} . ${target}`)
    }
  }
  const targets = [...(ready.size > 0 ? ready : lastResort)].sort()
  return targets.map((target) => ({ target, weight: 1 }))
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

function isPodAddress(text: string): boolean {
  const value = ipv4Number(text)
  return value !== undefined && isUsableIpv4(value)
}

function isPortNumber(port: number): boolean {
  return Number.isInteger(port) && port >= 1 && port <= 65535
}
