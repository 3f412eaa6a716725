/** What all stations of one call know: who calls whom, and the members that were asked. Pure. */
import {
  type FamilyName,
  containsAddress,
  familyName,
  formatAddress,
  isAddress,
  nodeClaim,
  ownPodAddress,
  parseAddress,
  parsePrefix,
  podPrefixes,
  prefixPairs,
  routedPrefixes,
  toGlobalText,
} from '../../model/addresses/addresses.ts'
import type { EndpointSlice, ServiceImport } from '../../model/model.ts'
import { type Seen, durationText } from '../facts/facts.ts'
import type { PacketTuple } from './document.ts'
import type { MemberView } from './member-view.ts'
import type { PathFrom, PathTo } from './path-ends.ts'
import { ofOneFamily } from './shares.ts'

/** The calling end. */
export interface PathCaller {
  readonly title: string
  /** Its own addresses that are known. */
  readonly addresses: readonly string[]
  /** The families by which it can call, in its order of preference. Undefined if they are not known. */
  readonly families?: readonly FamilyName[] | undefined
  /** The address of the family of the call. Undefined if it is not known. */
  readonly address?: string | undefined
  /** Why it can call although no address is known. */
  readonly without?: string | undefined
  /** Undefined if no node is known to have the address. */
  readonly node?: string | undefined
  /** Undefined if it is not known; null for a node itself, which is in none. */
  readonly namespace?: string | null | undefined
  readonly source: string
  readonly at: string
}

export interface Trip {
  readonly here: MemberView
  /** The other members that were asked, by id. */
  readonly far: ReadonlyMap<string, MemberView>
  readonly caller: PathCaller
  readonly to: PathTo
  /** The called service. Undefined for the address of a pod, or if it is not imported. */
  readonly service?: { readonly namespace: string; readonly name: string }
  readonly imported?: Seen<ServiceImport> | undefined
  /** The clusterset IP that is called. */
  readonly virtual?: string | undefined
  /** The family of the call. Undefined if it is not known, or the ends have none in common. */
  readonly family?: FamilyName | undefined
  /** The families of the called end, if the caller has none of them. */
  readonly lacking?: readonly FamilyName[] | undefined
}

/** One pod that may be called, at the address that the calling cluster uses for it. */
export interface Backend {
  readonly address: string
  readonly port?: number | undefined
}

/** The way to one cluster. */
export interface Way {
  readonly cluster: string
  readonly share?: number
  readonly backends: readonly Backend[]
}

/** A question that names something that is not there, or that Sealane has no part in. */
export interface WrongQuestion {
  readonly wrong: string
  readonly hint: string
}

const NODE_HINT = 'see: kubectl get nodes; at a site: its spec.nodes'

export function callerOf(from: PathFrom, here: MemberView): PathCaller | WrongQuestion {
  switch (from.what) {
    case 'pod':
      return podCaller(from.namespace, from.name, here)
    case 'node':
      return nodeCaller(from.name, here)
    case 'address':
      return addressCaller(from.address, here)
  }
}

function podCaller(namespace: string, name: string, here: MemberView): PathCaller | WrongQuestion {
  const title = `${namespace}/${name}`
  const at = here.world.takenAt
  if (here.objects.Pod === undefined) {
    if (here.world.atSite) return { wrong: `${title}: a site has no pods`, hint: 'name a node or an address' }
    return { title: `pod ${title}`, addresses: [], namespace, source: 'the question', at }
  }
  const pod = here.objects.Pod.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name)
  if (pod === undefined)
    return { wrong: `pod ${title}: not in this cluster`, hint: `see: kubectl -n ${namespace} get pods` }
  const { spec, status } = pod
  const rest = { title: `pod ${title}`, node: spec?.nodeName, source: 'API server', at }
  if (spec?.hostNetwork === true) return { ...rest, ...ofNode(spec.nodeName, here), namespace: null }
  const ips = [...(status?.podIP === undefined ? [] : [status.podIP]), ...(status?.podIPs ?? []).map(({ ip }) => ip)]
  const addresses = [...new Set(ips)]
  return { ...rest, ...knownBy(addresses), namespace }
}

function knownBy(addresses: readonly string[]): Pick<PathCaller, 'addresses' | 'families'> {
  const families = familiesOf(addresses)
  return { addresses, ...(families.length === 0 ? {} : { families }) }
}

/** In the order of the addresses, each once. What is no address has none. */
export function familiesOf(addresses: readonly string[]): readonly FamilyName[] {
  return [...new Set(addresses.filter(isAddress).map((one) => familyName(parseAddress(one).family)))]
}

/**
 * A node calls pods of other clusters by its own address among its pods, which only its kernel knows for certain: it is
 * among the facts if the machine was examined.
 */
function ofNode(name: string | undefined, here: MemberView): Pick<PathCaller, 'addresses' | 'families' | 'without'> {
  const node = name === undefined ? undefined : here.find('Node', name)?.object
  if (name === undefined || node === undefined) return { addresses: [] }
  const own = here.cluster(here.self)?.object
  const agent = here.find('RouteAgent', name)?.object
  const host = here.world.probes.host?.find(({ object }) => object.node === name)?.object
  const all = host?.devices.flatMap((device) => device.addresses) ?? node.status?.addresses?.map((one) => one.address)
  const known = (all ?? []).filter((one) => isAddress(one.split('/')[0] ?? ''))
  const places = ([4, 6] as const).flatMap((family) => {
    const { ranges } = nodeClaim(node, agent, podPrefixes(own, family))
    return ranges.length === 0 ? [] : [{ family, address: ownPodAddress(known, ranges) }]
  })
  return {
    addresses: places.flatMap(({ address = [] }) => address),
    ...(places.length === 0 ? {} : { families: places.map(({ family }) => familyName(family)) }),
    without: 'calls other clusters by its own address among the pods, which is not known here',
  }
}

function nodeCaller(name: string, here: MemberView): PathCaller | WrongQuestion {
  const found = here.find('Node', name)
  if (found === undefined) {
    if (here.seen('Node') !== undefined) return { wrong: `node ${name}: not in this cluster`, hint: NODE_HINT }
    const at = here.world.takenAt
    return { title: `node ${name}`, addresses: [], node: name, namespace: null, source: 'the question', at }
  }
  const { source, at } = found
  return { title: `node ${name}`, ...ofNode(name, here), node: name, namespace: null, source, at }
}

function addressCaller(address: string, here: MemberView): PathCaller | WrongQuestion {
  const node = here
    .seen('Node')
    ?.find(({ object }) => object.status?.addresses?.some((one) => one.address === address) === true)
  if (node !== undefined) return nodeCaller(node.object.metadata.name, here)
  const pod = here.objects.Pod?.find(({ status }) => {
    return status?.podIP === address || status?.podIPs?.some(({ ip }) => ip === address) === true
  })
  if (pod !== undefined) {
    const found = podCaller(pod.metadata.namespace ?? '', pod.metadata.name, here)
    // Of a pod with two addresses, this one calls.
    return 'wrong' in found || found.namespace === null ? found : { ...found, ...knownBy([address]) }
  }
  const own = here.cluster(here.self)?.object
  const at = { source: 'the records of this cluster', at: here.world.takenAt }
  if (own === undefined || isIn(own.spec.podCIDRs, address)) {
    return { title: `address ${address}`, ...knownBy([address]), node: nodeOf(address, here), ...at }
  }
  const holder = ownerOf(address, here)
  const hint = holder === undefined ? 'name a pod or a node of this cluster' : `run this command at ${holder}`
  const text = holder === undefined ? 'not in the pod networks of this cluster' : `an address of ${holder}`
  return { wrong: `${address}: ${text}`, hint }
}

/**
 * The family of the call: the first of the caller that the called end has too. `offered` are the families of the called
 * end, empty if they are not known.
 */
export function familyOfCall(
  { families }: PathCaller,
  offered: readonly FamilyName[],
): Pick<Trip, 'family' | 'lacking'> {
  if (families === undefined) return { family: offered[0] }
  if (offered.length === 0) return { family: families[0] }
  const family = families.find((one) => offered.includes(one))
  return family === undefined ? { lacking: offered } : { family }
}

/** The caller with its address of the family. */
export function callingBy(caller: PathCaller, family: FamilyName | undefined): PathCaller {
  const address = caller.addresses.find((one) => family === undefined || familiesOf([one]).includes(family))
  return { ...caller, address }
}

/** The slices of the family of the call. Without one, those of IPv4 where there are any. */
export function ofCall(
  { family, here }: Pick<Trip, 'family' | 'here'>,
  slices: readonly EndpointSlice[],
): readonly EndpointSlice[] {
  // Facts alone have no addresses, and so no families.
  if (family === undefined || !here.hasAddresses) return ofOneFamily(slices)
  return slices.filter(({ addressType }) => addressType === family)
}

/** The node whose pods have the address; undefined unless exactly one claims it. */
export function nodeOf(address: string, view: MemberView): string | undefined {
  const own = view.cluster(view.self)?.object
  const agents = new Map(view.list('RouteAgent')?.map((agent) => [agent.metadata.name, agent]))
  const parsed = parseAddress(address)
  const prefixes = podPrefixes(own, parsed.family)
  const claims = (view.list('Node') ?? []).flatMap((node) => {
    const { ranges } = nodeClaim(node, agents.get(node.metadata.name), prefixes)
    return ranges.some((range) => containsAddress(range, parsed)) ? [node.metadata.name] : []
  })
  return claims.length === 1 ? claims[0] : undefined
}

/** The other member that reaches its pods at the address. Addresses of this cluster come first. */
export function ownerOf(address: string, here: MemberView): string | undefined {
  const parsed = parseAddress(address)
  return here.list('Cluster')?.find(({ spec }) => {
    return spec.id !== here.self && routedPrefixes(spec).some((prefix) => containsAddress(prefix, parsed))
  })?.spec.id
}

/** The called address is one of this cluster itself, within which Sealane carries nothing. */
export function isOwn(address: string, here: MemberView): boolean {
  const own = here.cluster(here.self)?.object.spec
  return own !== undefined && isIn([...own.podCIDRs, ...own.serviceCIDRs, ...own.globalCIDRs], address)
}

function isIn(cidrs: readonly string[], address: string): boolean {
  return cidrs.some((cidr) => containsAddress(parsePrefix(cidr), parseAddress(address)))
}

/** The address under which other clusters know a pod of this cluster. */
export function globalOf(address: string | undefined, id: string, view: MemberView): string | undefined {
  const spec = view.cluster(id)?.object.spec
  if (address === undefined || spec === undefined || !isAddress(address)) return address
  return toGlobalText(prefixPairs(spec), address)
}

/** The reverse of globalOf(): the pod's own address in its cluster. */
export function ownOf(address: string, id: string, view: MemberView): string {
  const spec = view.cluster(id)?.object.spec
  if (spec === undefined || !isAddress(address)) return address
  const reversed = prefixPairs(spec).map(({ own, global }) => ({ own: global, global: own }))
  return toGlobalText(reversed, address)
}

export function tupleOf(trip: Trip, ends: Pick<PacketTuple, 'source' | 'destination' | 'port'>): PacketTuple {
  const { source, destination, port } = ends
  return {
    protocol: trip.to.protocol,
    ...(source === undefined ? {} : { source }),
    ...(destination === undefined ? {} : { destination }),
    ...(port === undefined ? {} : { port }),
  }
}

export function isSameAddress(one: string, other: string): boolean {
  return one === other || (isAddress(one) && isAddress(other) && formatAddress(parseAddress(one)) === other)
}

export function ageText(view: MemberView, at: string | undefined): string {
  return durationText(view.ageOf(at) * 1000)
}
