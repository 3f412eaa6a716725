/** One service as DNS sees it, from its ServiceImport and the imported EndpointSlices. Pure. */
import { MAX_DNS_NAME_LENGTH, formatZoneName } from '../../model/dns/dns-name.ts'
import { dashedAddress } from '../../model/dns/endpoint-hostname.ts'
import { podsOf } from '../../model/services/endpoint-pods.ts'
import { isDnsLabel } from '../../model/ids.ts'
import { type Family, classifyAddress, formatAddress, parseAddress } from '../../model/addresses/ip.ts'
import type { EndpointSlice, ImportPort, ServiceImport, SliceEndpoint } from '../../model/objects.ts'
import { LABEL_SOURCE_CLUSTER } from '../../model/spec-constants.ts'
import type { DnsHost, DnsService, NamedPort } from './answer.ts'

/**
 * Pods of a headless service that answers name at most, each with all of its addresses. All record forms of the service
 * come from this same subset, so that A, AAAA, SRV and hostname records agree.
 */
export const MAX_HOSTS = 1000

/**
 * Takes the slices of this service only. `reachable`: clusters that answer the lanes' probes; undefined keeps all.
 * Fields that others may have left out or got wrong are passed over, never trusted.
 */
export function serviceEntry(
  serviceImport: ServiceImport,
  slices: Iterable<EndpointSlice>,
  reachable: ReadonlySet<string> | undefined,
): DnsService {
  const { spec, metadata } = serviceImport
  const base = { namespace: metadata.namespace ?? '', name: metadata.name, type: spec.type }
  if (spec.type === 'ClusterSetIP') {
    const ips = (spec.ips ?? []).flatMap((text) => usableAddress(text))
    return { ...base, ...byFamily(ips), ports: namedPorts(spec.ports), hosts: [] }
  }
  const hosts = subset([...readyHosts(spec.ports, slices, reachable).values()].sort(compareHosts))
  return {
    ...base,
    a: unique(hosts.flatMap((host) => host.a)),
    aaaa: unique(hosts.flatMap((host) => host.aaaa)),
    ports: [],
    hosts: hosts.filter((host) => isNameable(base, host)),
  }
}

interface HostParts {
  readonly cluster: string
  readonly hostname: string
  /** Endpoints of one cluster with the same are one pod. */
  readonly pod: string | undefined
  readonly a: string[]
  readonly aaaa: string[]
  readonly ports: NamedPort[]
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
  // discovery.k8s.io/v1: an unknown readiness counts as ready.
  if (endpoint.conditions?.ready === false) return
  for (const address of endpoint.addresses.flatMap((text) => usableAddress(text))) {
    const hostname = hostnameOf(endpoint, address.text)
    const key = `${hostname}.${cluster}`
    const host = hosts.get(key) ?? { cluster, hostname, pod, a: [], aaaa: [], ports: [] }
    hosts.set(key, host)
    const list = address.family === 4 ? host.a : host.aaaa
    if (!list.includes(address.text)) list.push(address.text)
    for (const port of ports) if (!host.ports.some((known) => samePort(known, port))) host.ports.push(port)
  }
}

function hostnameOf(endpoint: SliceEndpoint, address: string): string {
  const hostname = endpoint.hostname?.toLowerCase()
  return hostname !== undefined && isDnsLabel(hostname) ? hostname : dashedAddress(address)
}

/** Ports of a slice that the import names too: a port that lost a conflict is not published. Target port numbers. */
function exposedPorts(importPorts: readonly ImportPort[], slice: EndpointSlice): NamedPort[] {
  return importPorts.flatMap((wanted) => {
    const name = wanted.name ?? ''
    const port = slice.ports?.find((p) => (p.name ?? '') === name && (p.protocol ?? 'TCP') === wanted.protocol)
    return port === undefined ? [] : namedPorts([{ ...wanted, port: port.port ?? wanted.port }])
  })
}

function namedPorts(ports: readonly ImportPort[]): NamedPort[] {
  return ports.flatMap(({ name, protocol, port }) =>
    name === undefined || name === '' ? [] : [{ name: name.toLowerCase(), protocol: protocol.toLowerCase(), port }],
  )
}

function samePort(a: NamedPort, b: NamedPort): boolean {
  return a.name === b.name && a.protocol === b.protocol && a.port === b.port
}

interface AddressText {
  readonly family: Family
  readonly text: string
}

/** None for what is not an address, or one that must not be handed out, such as a loopback address. */
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
 * Takes hosts sorted by cluster. Above the bound each cluster gives in turn, so that a large one crowds out no other.
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

/** In the order of their first hosts. One of each family at most: whatever a member says, a pod is no crowd. */
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

/** A name that is too long for DNS cannot be published; the address still can. */
function isNameable(service: { readonly namespace: string; readonly name: string }, host: DnsHost): boolean {
  const name = { kind: 'endpoint', namespace: service.namespace, service: service.name, ...host } as const
  return formatZoneName(name).length - 1 <= MAX_DNS_NAME_LENGTH
}
