/**
 * The services of the clusterset by name, kept current from the local API. A change of one object only affects its own
 * service: the entry is dropped, and the next question for the service creates it again. Objects are kept by reference;
 * the caches hold them anyway.
 */
import type { ClusterApi, ObjectCache, ObjectChange } from '../../kubeapi/kubeapi.ts'
import {
  type ClusterValidation,
  type Family,
  type Prefix,
  checkRemoteClusters,
  classifyAddress,
  formatAddress,
  parseAddress,
  underlayAddresses,
} from '../../model/addresses/addresses.ts'
import {
  CLUSTERSET_ZONE,
  type Cluster,
  type EndpointSlice,
  type Gateway,
  type ImportPort,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  MAX_DNS_NAME_LENGTH,
  type Node,
  type ServiceImport,
  type ServiceKey,
  type SliceEndpoint,
  formatZoneName,
  importedHostname,
  isDnsLabel,
  serviceKey,
} from '../../model/model.ts'
import { unansweredClusters, usableClusters } from '../../model/lanes/lanes.ts'
import { podsOf } from '../../model/services/services.ts'
import { Listeners } from '../../reconcile/reconcile.ts'
import type { SiteNetworks } from '../clients/clients.ts'
import { HEADER_LENGTH, byte } from '../message/message.ts'
import { type DnsHost, type DnsService, type NamedPort, type ZoneView, namedPorts } from './answer.ts'
import { type Affects, type ChosenClusters, HeadlessShares } from './headless-shares.ts'

// Builds one service as DNS sees it from its ServiceImport and the imported EndpointSlices. Pure.

/**
 * Maximum number of pods in answers about a headless service, each with all of its addresses. All records of the
 * service come from this same subset, so that A, AAAA, SRV and hostname records agree.
 */
export const MAX_HOSTS = 1000

/**
 * Takes the slices of this service only. `reachable` contains the clusters that answer the probes of the lanes;
 * undefined keeps all. `chosen` has the clusters that answers about a headless service have; undefined: all of the
 * reachable ones. Ignores fields that other clusters have left out or filled with invalid values.
 */
export function serviceEntry(
  serviceImport: ServiceImport,
  slices: Iterable<EndpointSlice>,
  reachable: ReadonlySet<string> | undefined,
  chosen?: ChosenClusters,
): DnsService {
  const { spec, metadata } = serviceImport
  const base = { namespace: metadata.namespace ?? '', name: metadata.name, type: spec.type }
  if (spec.type === 'ClusterSetIP') {
    const ips = (spec.ips ?? []).flatMap((text) => usableAddress(text))
    return { ...base, ...byFamily(ips), ports: namedPorts(spec.ports), hosts: [] }
  }
  const ready = [...readyHosts(spec.ports, slices, reachable).values()].sort(compareHosts)
  const ports = chosen === undefined ? undefined : new ChosenPorts(chosen)
  const hasAddress = (host: HostParts, family: Family): boolean =>
    addressesOf(host, family).length > 0 && (chosen?.has(host.cluster, family) ?? true)
  const isChosen = (host: HostParts): boolean =>
    hasAddress(host, 4) || hasAddress(host, 6) || (ports?.of(host).length ?? 0) > 0
  const hosts = subset(ready.filter(isChosen))
  const others = subset(ready.filter((host) => !isChosen(host))).filter((host) => isNameable(base, host))
  const answered = (family: Family): string[] =>
    unique(hosts.flatMap((host) => (hasAddress(host, family) ? addressesOf(host, family) : [])))
  const named = hosts.filter((host) => isNameable(base, host))
  return {
    ...base,
    a: answered(4),
    aaaa: answered(6),
    ports: [],
    hosts: ports === undefined ? named : named.map((host) => ({ ...host, ports: ports.of(host) })),
    ...(others.length === 0 ? {} : { others }),
  }
}

/**
 * The ports of hosts that SRV records name: those in whose calls the cluster has a share, by any
 * address of the host.
 */
class ChosenPorts {
  readonly #chosen: ChosenClusters
  /** By the array that hosts share, and by cluster and families. */
  readonly #known = new Map<readonly NamedPort[], Map<string, readonly NamedPort[]>>()

  constructor(chosen: ChosenClusters) {
    this.#chosen = chosen
  }

  of(host: HostParts): readonly NamedPort[] {
    const { cluster, ports } = host
    const families = ([4, 6] as const).filter((family) => addressesOf(host, family).length > 0)
    const isGiven = (port?: NamedPort): boolean => families.some((family) => this.#chosen.has(cluster, family, port))
    if (!this.#chosen.dividesPorts) return isGiven() ? ports : []
    const ofPorts = this.#known.get(ports) ?? new Map<string, readonly NamedPort[]>()
    this.#known.set(ports, ofPorts)
    const key = `${cluster} ${families.join()}`
    const found = ofPorts.get(key) ?? ports.filter(isGiven)
    ofPorts.set(key, found)
    return found
  }
}

function addressesOf({ a, aaaa }: HostParts, family: Family): readonly string[] {
  return family === 4 ? a : aaaa
}

interface HostParts {
  readonly cluster: string
  readonly hostname: string
  /** Endpoints of one cluster with the same value are one pod. */
  readonly pod: string | undefined
  readonly a: string[]
  readonly aaaa: string[]
  /** Hosts of one slice share the array. */
  ports: readonly NamedPort[]
}

function readyHosts(
  importPorts: readonly ImportPort[],
  slices: Iterable<EndpointSlice>,
  reachable: ReadonlySet<string> | undefined,
): Map<string, HostParts> {
  const hosts = new Map<string, HostParts>()
  for (const slice of slices) {
    const cluster = slice.metadata.labels?.[LABEL_SOURCE_CLUSTER]
    if (cluster === undefined || !isDnsLabel(cluster)) continue
    if (reachable !== undefined && !reachable.has(cluster)) continue
    const ports = exposedPorts(importPorts, slice)
    const pods = podsOf(slice)
    for (const [i, endpoint] of (slice.endpoints ?? []).entries())
      addEndpoint(hosts, { cluster, endpoint, ports, pod: pods[i] })
  }
  return hosts
}

interface EndpointOfCluster {
  readonly cluster: string
  readonly endpoint: SliceEndpoint
  readonly ports: readonly NamedPort[]
  readonly pod: string | undefined
}

function addEndpoint(hosts: Map<string, HostParts>, { cluster, endpoint, ports, pod }: EndpointOfCluster): void {
  // discovery.k8s.io/v1: unknown readiness counts as ready.
  if (endpoint.conditions?.ready === false) return
  for (const address of endpoint.addresses.flatMap((text) => usableAddress(text))) {
    const hostname = importedHostname(endpoint, address.text)
    const key = `${hostname}.${cluster}`
    const host = hosts.get(key) ?? { cluster, hostname, pod, a: [], aaaa: [], ports: [] }
    hosts.set(key, host)
    const list = address.family === 4 ? host.a : host.aaaa
    if (!list.includes(address.text)) list.push(address.text)
    host.ports = unitedPorts(host.ports, ports)
  }
}

/**
 * Returns the ports of a slice that the import also lists, with their target port numbers. A port that lost a conflict
 * is not in the import, and is not published.
 */
function exposedPorts(importPorts: readonly ImportPort[], slice: EndpointSlice): NamedPort[] {
  const own = new Map((slice.ports ?? []).toReversed().map((p) => [`${p.protocol ?? 'TCP'}/${p.name ?? ''}`, p]))
  return importPorts.flatMap((wanted) => {
    const name = wanted.name ?? ''
    const port = own.get(`${wanted.protocol}/${name}`)
    return port === undefined ? [] : namedPorts([{ ...wanted, port: port.port ?? wanted.port }])
  })
}

/** Returns `known` or `more` itself where it has all ports of the other one. */
function unitedPorts(known: readonly NamedPort[], more: readonly NamedPort[]): readonly NamedPort[] {
  if (known === more || more.length === 0) return known
  if (known.length === 0) return more
  const keyOf = ({ name, protocol, port }: NamedPort): string => `${name}/${protocol}/${port}`
  const united = new Map([...known, ...more].map((port) => [keyOf(port), port]))
  return united.size === known.length ? known : [...united.values()]
}

interface AddressText {
  readonly family: Family
  readonly text: string
}

/** Returns an empty list for an invalid address, and for one that must not be published, such as a loopback address. */
function usableAddress(text: string): AddressText[] {
  try {
    const address = parseAddress(text)
    return classifyAddress(address) === 'usable' ? [{ family: address.family, text: formatAddress(address) }] : []
  } catch {
    return []
  }
}

function byFamily(addresses: readonly AddressText[]): { a: string[]; aaaa: string[] } {
  const of = (family: Family): string[] => unique(addresses.flatMap((a) => (a.family === family ? [a.text] : [])))
  return { a: of(4), aaaa: of(6) }
}

function unique(texts: readonly string[]): string[] {
  return [...new Set(texts)]
}

function compareHosts(a: HostParts, b: HostParts): number {
  return compareText(a.cluster, b.cluster) || compareText(a.hostname, b.hostname)
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

/**
 * Takes hosts sorted by cluster. Above the limit, clusters take turns, so that a large one does not displace the
 * others.
 */
function subset(hosts: readonly HostParts[]): readonly HostParts[] {
  if (hosts.length <= MAX_HOSTS) return hosts
  const rank = new Map<string, number>()
  const ranked = podsAmong(hosts).map((pod) => {
    const place = rank.get(pod[0].cluster) ?? 0
    rank.set(pod[0].cluster, place + 1)
    return { pod, place }
  })
  const chosen = ranked.sort((a, b) => a.place - b.place).slice(0, MAX_HOSTS)
  return chosen.flatMap(({ pod }) => pod).sort(compareHosts)
}

type Pod = [HostParts, ...HostParts[]]

/**
 * Returns pods in the order of their first hosts. A pod has at most one host of each family, whatever a member reports.
 */
function podsAmong(hosts: readonly HostParts[]): Pod[] {
  const pods: Pod[] = []
  const known = new Map<string, Pod>()
  for (const host of hosts) {
    const key = `${host.cluster}/${host.pod ?? ''}`
    const pod = host.pod === undefined ? undefined : known.get(key)
    const [first] = pod ?? []
    if (pod?.length === 1 && first !== undefined && !sharesFamily(first, host)) pod.push(host)
    else {
      const one: Pod = [host]
      pods.push(one)
      if (host.pod !== undefined && pod === undefined) known.set(key, one)
    }
  }
  return pods
}

function sharesFamily(a: HostParts, b: HostParts): boolean {
  return (a.a.length > 0 && b.a.length > 0) || (a.aaaa.length > 0 && b.aaaa.length > 0)
}

/** A name that is too long for DNS cannot be published, but its address can. */
function isNameable(service: { readonly namespace: string; readonly name: string }, host: DnsHost): boolean {
  const name = { kind: 'endpoint', namespace: service.namespace, service: service.name, ...host } as const
  return formatZoneName(name).length - 1 <= MAX_DNS_NAME_LENGTH
}

export interface ServiceIndexInit {
  /** Id of the cluster that this server runs in; it is always reachable. */
  readonly clusterId: string
  readonly nameServers: ZoneView['nameServers']
  /** First serial of the SOA record. It increases with every change. */
  readonly serial: number
}

export class ServiceIndex implements ZoneView, SiteNetworks {
  readonly nameServers: ZoneView['nameServers']
  readonly #clusterId: string
  readonly #imports = new Map<ServiceKey, ServiceImport>()
  readonly #labels = new KnownLabels()
  readonly #headless = new Set<ServiceKey>()
  readonly #shares: HeadlessShares
  readonly #slices = new Map<ServiceKey, Map<string, EndpointSlice>>()
  readonly #namespaces = new Map<string, number>()
  readonly #entries = new Map<ServiceKey, DnsService>()
  readonly #listeners = new Listeners<[key: ServiceKey]>()
  #usable: ReadonlySet<string> | undefined
  #unanswered: ReadonlySet<string> = new Set()
  #nodes: readonly Node[] = []
  #networksVersion = 0
  #validation: ClusterValidation | undefined
  #serial: number
  #isSynced = false
  #caches: readonly Pick<ObjectCache<unknown>, 'synced' | 'whenSynced'>[] | undefined

  constructor(init: ServiceIndexInit) {
    this.#clusterId = init.clusterId
    this.#shares = new HeadlessShares(init.clusterId)
    this.nameServers = init.nameServers
    this.#serial = init.serial >>> 0
  }

  get synced(): boolean {
    // A cache that has synced stays synced.
    this.#isSynced ||= this.#caches?.every((cache) => cache.synced) ?? false
    return this.#isSynced
  }

  /** Resolves once the watched caches have synced. Rejects with the reason of the signal. */
  async whenSynced(signal: AbortSignal): Promise<void> {
    await Promise.all((this.#caches ?? []).map((cache) => cache.whenSynced(signal)))
  }

  get serial(): number {
    return this.#serial
  }

  /** Number of known services. */
  get size(): number {
    return this.#imports.size
  }

  /**
   * Watches the caches of an API until the returned function is called. `gateways` may be a cache that shows the
   * connections of dead gateways as down.
   */
  follow(api: Pick<ClusterApi, 'cache'>, gateways: ObjectCache<Gateway> = api.cache('Gateway')): () => void {
    const imports = api.cache('ServiceImport')
    const slices = api.cache('EndpointSlice')
    const clusters = api.cache('Cluster')
    const nodes = api.cache('Node')
    const reconsider = (): void => {
      const isKnown = clusters.synced && nodes.synced
      this.#nodes = nodes.list()
      this.#validation = isKnown ? this.#validateClusters(clusters.list(), this.#nodes) : undefined
      this.#networksVersion += 1
      this.#validate(gateways.list())
    }
    this.#caches = [imports, slices, gateways]
    const stops = [
      followCache(imports, (change) => this.#importChanged(change)),
      followCache(slices, (change) => this.#sliceChanged(change)),
      gateways.onChange(() => this.#validate(gateways.list())),
      ...[clusters, nodes].map((cache) => cache.onChange(() => reconsider())),
      this.#shares.follow(api, (affects) => this.#sharesChanged(affects)),
    ]
    reconsider()
    return () => {
      for (const stop of stops) stop()
    }
  }

  /** Changes each time a Node or Cluster changes. */
  get networksVersion(): number {
    return this.#networksVersion
  }

  /** InternalIPs of the nodes of this cluster. */
  get nodeAddresses(): readonly string[] {
    return underlayAddresses(this.#nodes)
  }

  /** The source prefixes of the other clusters; empty until the object of this cluster has been read. */
  get lanePrefixes(): readonly Prefix[] {
    return this.#validation?.clusters.flatMap(({ prefixes }) => prefixes) ?? []
  }

  /** Returns false if certainly no service has labels with this labelsHash(). */
  mayHave(hash: number): boolean {
    return this.#labels.has(hash)
  }

  /** Returns the name of every service, in no particular order. */
  names(): { readonly namespace: string; readonly name: string }[] {
    return [...this.#imports.values()].map(({ metadata: { namespace = '', name } }) => ({ namespace, name }))
  }

  hasNamespace(namespace: string): boolean {
    return this.#namespaces.has(namespace)
  }

  service(namespace: string, name: string): DnsService | undefined {
    const key = serviceKey(namespace, name)
    const known = this.#entries.get(key)
    if (known !== undefined) return known
    const serviceImport = this.#imports.get(key)
    if (serviceImport === undefined) return undefined
    const slices = this.#sortedSlices(key)
    const links = { reachable: this.#usable, unanswered: this.#unanswered }
    const chosen = this.#shares.chosen(serviceImport, slices, links)
    const entry = serviceEntry(serviceImport, slices, this.#usable, chosen)
    this.#entries.set(key, entry)
    return entry
  }

  /** Returns every service, sorted by namespace and name. */
  services(): DnsService[] {
    const all = [...this.#imports.values()].flatMap(({ metadata }) => {
      const service = this.service(metadata.namespace ?? '', metadata.name)
      return service === undefined ? [] : [service]
    })
    return all.sort((a, b) => (serviceKey(a.namespace, a.name) < serviceKey(b.namespace, b.name) ? -1 : 1))
  }

  /** Calls `listener` with each service whose answers may have changed. */
  onServiceChange(listener: (key: ServiceKey) => void): () => void {
    return this.#listeners.add(listener)
  }

  /** Undefined until the Cluster object of this cluster has been read. */
  #validateClusters(clusters: readonly Cluster[], nodes: readonly Node[]): ClusterValidation | undefined {
    const own = clusters.find((cluster) => cluster.metadata.name === this.#clusterId)
    return own && checkRemoteClusters({ own, clusters, underlay: underlayAddresses(nodes) })
  }

  /** Updates the headless services with endpoints in clusters that became refused, usable, down, silent or up. */
  #validate(gateways: readonly Gateway[]): void {
    const before = this.#usable
    const now = usableClusters(this.#clusterId, gateways, this.#validation)
    const unanswered = unansweredClusters(gateways)
    const unansweredBefore = this.#unanswered
    if (sameClusters(before, now) && sameClusters(unansweredBefore, unanswered)) return
    this.#usable = now
    this.#unanswered = unanswered
    const validatedAlike = (cluster: string): boolean =>
      (before?.has(cluster) ?? true) === (now?.has(cluster) ?? true) &&
      unansweredBefore.has(cluster) === unanswered.has(cluster)
    for (const key of this.#headless) {
      for (const slice of this.#slices.get(key)?.values() ?? []) {
        if (validatedAlike(slice.metadata.labels?.[LABEL_SOURCE_CLUSTER] ?? '')) continue
        this.#touch(key)
        break
      }
    }
  }

  #sharesChanged(affects: Affects): void {
    for (const key of this.#headless) {
      const service = this.#imports.get(key)
      if (service !== undefined && affects(service)) this.#touch(key)
    }
  }

  #importChanged(change: ObjectChange<ServiceImport>): void {
    const { object } = change
    const namespace = object.metadata.namespace ?? ''
    const key = serviceKey(namespace, object.metadata.name)
    const existed = this.#imports.has(key)
    if (change.type === 'set') {
      this.#imports.set(key, object)
      if (!existed) {
        this.#labels.add(namespace, object.metadata.name)
        this.#namespaces.set(namespace, (this.#namespaces.get(namespace) ?? 0) + 1)
      }
    } else if (this.#imports.delete(key)) {
      this.#labels.delete(namespace, object.metadata.name)
      const left = (this.#namespaces.get(namespace) ?? 1) - 1
      if (left === 0) this.#namespaces.delete(namespace)
      else this.#namespaces.set(namespace, left)
    }
    if (change.type === 'set' && object.spec.type === 'Headless') this.#headless.add(key)
    else this.#headless.delete(key)
    this.#touch(key)
  }

  #sliceChanged(change: ObjectChange<EndpointSlice>): void {
    const key = serviceOf(change.object)
    const before = change.type === 'set' && change.previous !== undefined ? serviceOf(change.previous) : key
    if (before !== undefined && (before !== key || change.type === 'removed')) this.#removeSlice(before, change.object)
    if (key === undefined || change.type === 'removed') return
    const slices = this.#slices.get(key) ?? new Map<string, EndpointSlice>()
    this.#slices.set(key, slices)
    slices.set(change.object.metadata.name, change.object)
    this.#touch(key)
  }

  #removeSlice(key: ServiceKey, slice: EndpointSlice): void {
    const slices = this.#slices.get(key)
    if (slices?.delete(slice.metadata.name) !== true) return
    if (slices.size === 0) this.#slices.delete(key)
    this.#touch(key)
  }

  #touch(key: ServiceKey): void {
    this.#serial = (this.#serial + 1) >>> 0
    this.#entries.delete(key)
    this.#listeners.call(key)
  }

  #sortedSlices(key: ServiceKey): EndpointSlice[] {
    const slices = [...(this.#slices.get(key)?.values() ?? [])]
    return slices.sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
  }
}

/** Reports the objects that the cache already contains, then every change. */
function followCache<T>(cache: ObjectCache<T>, changed: (change: ObjectChange<T>) => void): () => void {
  for (const object of cache.list()) changed({ type: 'set', object, previous: undefined })
  return cache.onChange((change) => {
    if (change !== undefined) changed(change)
  })
}

function serviceOf(slice: EndpointSlice): ServiceKey | undefined {
  const service = slice.metadata.labels?.[LABEL_SERVICE_NAME]
  return service === undefined ? undefined : serviceKey(slice.metadata.namespace ?? '', service)
}

function sameClusters(a: ReadonlySet<string> | undefined, b: ReadonlySet<string> | undefined): boolean {
  if (a === undefined || b === undefined) return a === b
  return a.size === b.size && [...a].every((cluster) => b.has(cluster))
}

// Hashes of service names as they appear in questions. One pass over the octets of a question nearly always shows
// whether the service exists, and finds its answer (kept-answers.ts), without creating a string. NXDOMAIN in
// particular must be cheap: clients try their search domains first, and the answers cannot be kept because the number
// of such names is unlimited.

/**
 * Converts letters to lower case. Other octets that become equal cost an extra comparison, but cause no wrong answer.
 */
const FOLD = 0x20
/** FNV-1a, truncated to the range of V8's small integers. */
const HASH_START = 0x811c9dc5
const HASH_PRIME = 0x01000193
const HASH_BITS = 0x3fff_ffff
/** The result of labelsHash() for a name that is not at or below a service. */
export const NO_SERVICE = -1

/** The end of every service name: `svc`, the zone, the root. */
const ENDING = Buffer.from(
  `${['svc', ...CLUSTERSET_ZONE.split('.')].map((text) => label(text)).join('')}\0`,
  'latin1',
).map((octet) => octet | FOLD)

/**
 * Takes a query whose question has been parsed, and the offset after its name. Returns the hash of the two labels,
 * service and namespace, of the service that the name is at or below. Returns NO_SERVICE for every other name.
 */
export function labelsHash(query: Uint8Array, nameEnd: number): number {
  const end = nameEnd - ENDING.length
  // The length octets of the ending need no check of their own: in a parsed name, labels begin where the lengths say.
  for (let i = 0; i < ENDING.length; i += 1) if ((byte(query, end + i) | FOLD) !== ENDING[i]) return NO_SERVICE
  let start = NO_SERVICE
  let here = HEADER_LENGTH
  for (let next = here + byte(query, here) + 1; next < end; next = here + byte(query, here) + 1) {
    start = here
    here = next
  }
  // With a start, there are two labels before the ending, provided that the second one ends where the ending begins.
  return start < 0 || here + byte(query, here) + 1 !== end ? NO_SERVICE : hashOfOctets(query, start, end)
}

/** Takes the octets of a whole name. True if it has the form of a service name, not of a name below it. */
export function isServiceName(octets: Uint8Array): boolean {
  const first = byte(octets, 0) + 1
  return first + byte(octets, first) + 1 + ENDING.length === octets.length && octets.length > ENDING.length + 2
}

function hashOfOctets(octets: Uint8Array, start: number, end: number): number {
  let hash = HASH_START
  for (let at = start; at < end; at += 1) hash = Math.imul(hash ^ (byte(octets, at) | FOLD), HASH_PRIME)
  return hash & HASH_BITS
}

/** The hashes of the existing services. */
export class KnownLabels {
  /** Maps hash → number of services that have it. */
  readonly #hashes = new Map<number, number>()

  add(namespace: string, name: string): void {
    const hash = hashOfNames(namespace, name)
    this.#hashes.set(hash, (this.#hashes.get(hash) ?? 0) + 1)
  }

  /** Takes only services that were added. */
  delete(namespace: string, name: string): void {
    const hash = hashOfNames(namespace, name)
    const left = (this.#hashes.get(hash) ?? 1) - 1
    if (left === 0) this.#hashes.delete(hash)
    else this.#hashes.set(hash, left)
  }

  /** Returns false if certainly no service has the hash. */
  has(hash: number): boolean {
    return this.#hashes.has(hash)
  }
}

function hashOfNames(namespace: string, name: string): number {
  const octets = Buffer.from(label(name) + label(namespace), 'latin1')
  return hashOfOctets(octets, 0, octets.length)
}

function label(text: string): string {
  return String.fromCharCode(text.length) + text
}
