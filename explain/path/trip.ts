/** What all stations of one call know: who calls whom, and the members that were asked. Pure. */
import {
  containsAddress,
  formatAddress,
  isAddress,
  nodeClaim,
  parseAddress,
  parsePrefix,
  podPrefixes,
  prefixPairs,
  routedPrefixes,
  toGlobalText,
} from '../../model/addresses/addresses.ts'
import type { ServiceImport } from '../../model/model.ts'
import { type Seen, durationText } from '../facts/facts.ts'
import type { PacketTuple } from './document.ts'
import type { MemberView } from './member-view.ts'
import type { PathFrom, PathTo } from './path-ends.ts'

/** The calling end. */
export interface PathCaller {
  readonly title: string
  /** Its own address. Undefined if it has none yet. */
  readonly address?: string | undefined
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
    return { title: `pod ${title}`, namespace, source: 'the question', at }
  }
  const pod = here.objects.Pod.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name)
  if (pod === undefined)
    return { wrong: `pod ${title}: not in this cluster`, hint: `see: kubectl -n ${namespace} get pods` }
  const { spec, status } = pod
  const isOfNode = spec?.hostNetwork === true
  return {
    title: `pod ${title}`,
    address: status?.podIP,
    node: spec?.nodeName,
    namespace: isOfNode ? null : namespace,
    source: 'API server',
    at,
  }
}

function nodeCaller(name: string, here: MemberView): PathCaller | WrongQuestion {
  const found = here.find('Node', name)
  if (found === undefined) {
    if (here.seen('Node') !== undefined) return { wrong: `node ${name}: not in this cluster`, hint: NODE_HINT }
    return { title: `node ${name}`, node: name, namespace: null, source: 'the question', at: here.world.takenAt }
  }
  const address = found.object.status?.addresses?.find(({ type }) => type === 'InternalIP')?.address
  return { title: `node ${name}`, address, node: name, namespace: null, source: found.source, at: found.at }
}

function addressCaller(address: string, here: MemberView): PathCaller | WrongQuestion {
  const node = here
    .seen('Node')
    ?.find(({ object }) => object.status?.addresses?.some((one) => one.address === address) === true)
  if (node !== undefined) return nodeCaller(node.object.metadata.name, here)
  const pod = here.objects.Pod?.find(({ status }) => status?.podIP === address)
  if (pod !== undefined) return podCaller(pod.metadata.namespace ?? '', pod.metadata.name, here)
  const own = here.cluster(here.self)?.object
  const at = { source: 'the records of this cluster', at: here.world.takenAt }
  if (own === undefined || isIn(own.spec.podCIDRs, address)) {
    return { title: `address ${address}`, address, node: nodeOf(address, here), ...at }
  }
  const holder = ownerOf(address, here)
  const hint = holder === undefined ? 'name a pod or a node of this cluster' : `run this command at ${holder}`
  const text = holder === undefined ? 'not in the pod networks of this cluster' : `an address of ${holder}`
  return { wrong: `${address}: ${text}`, hint }
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
