/**
 * Answers of the zone clusterset.local: a pure function of the known services, the question and a rotation number.
 * Record forms: specification.md of KEP-1645 (schema 1.0.0). Negative answers: RFC 2308 and RFC 8020.
 */
import {
  CLUSTERSET_NAME_SERVER,
  CLUSTERSET_ZONE,
  DNS_TTL_SECONDS,
  type ImportPort,
  MCS_DNS_SCHEMA_VERSION,
  type ZoneName,
  formatZoneName,
} from '../../model/model.ts'
import { TYPE_A, TYPE_AAAA, TYPE_ANY, TYPE_NS, TYPE_SOA, TYPE_SRV, TYPE_TXT } from '../message/message.ts'

/** Types of zone transfers and of obsolete mail records, RFC 1035 section 3.2.3 and RFC 1995. */
const FIRST_TRANSFER_TYPE = 251
const LAST_TRANSFER_TYPE = 254

/** In seconds. Short, so that neither positive nor negative answers outlive a change for long. */
export const TTL_SECONDS = DNS_TTL_SECONDS
const SOA_TIMERS = { refresh: 7200, retry: 1800, expire: 86_400, minimum: TTL_SECONDS } as const
const ZONE = `${CLUSTERSET_ZONE}.`
const NAME_SERVER = `${CLUSTERSET_NAME_SERVER}.`

/** One resource record. Names are absolute, with the final dot. */
export type DnsRecord = { readonly owner: string; readonly ttl: number } & (
  | { readonly type: 'A' | 'AAAA'; readonly address: string }
  | {
      readonly type: 'SRV'
      readonly priority: number
      readonly weight: number
      readonly port: number
      readonly target: string
    }
  | { readonly type: 'TXT'; readonly text: string }
  | { readonly type: 'NS'; readonly target: string }
  | SoaData
)
export interface SoaData {
  readonly type: 'SOA'
  readonly primary: string
  readonly admin: string
  readonly serial: number
  readonly refresh: number
  readonly retry: number
  readonly expire: number
  readonly minimum: number
}
export type SoaRecord = { readonly owner: string; readonly ttl: number } & SoaData

export type DnsAnswer =
  | { readonly kind: 'answer'; readonly records: readonly DnsRecord[]; readonly additional: readonly DnsRecord[] }
  | { readonly kind: 'noData' | 'nxDomain'; readonly soa: SoaRecord }
  | { readonly kind: 'servFail' }

/** A named port; ports without a name have no SRV record. In lower case, because DNS ignores case. */
export interface NamedPort {
  readonly name: string
  readonly protocol: string
  readonly port: number
}

/** Ports with a name, as SRV records have them. */
export function namedPorts(ports: readonly ImportPort[]): NamedPort[] {
  return ports.flatMap(({ name, protocol, port }) =>
    name === undefined || name === '' ? [] : [{ name: name.toLowerCase(), protocol: protocol.toLowerCase(), port }],
  )
}

/** One ready endpoint of a headless service. */
export interface DnsHost {
  readonly cluster: string
  readonly hostname: string
  readonly a: readonly string[]
  readonly aaaa: readonly string[]
  /** Those of its ports that SRV records name. */
  readonly ports: readonly NamedPort[]
}

/** A service as DNS sees it. A ClusterSetIP service has addresses and ports, but no hosts. */
export interface DnsService {
  readonly namespace: string
  readonly name: string
  readonly type: 'ClusterSetIP' | 'Headless'
  readonly a: readonly string[]
  readonly aaaa: readonly string[]
  readonly ports: readonly NamedPort[]
  readonly hosts: readonly DnsHost[]
  /** Hosts of clusters without a share (headless-shares.ts): only their own names are answered. Absent: none. */
  readonly others?: readonly DnsHost[]
}

/** The state that answers depend on. ServiceIndex implements it. */
export interface ZoneView {
  /** False until all existing objects have been read once. */
  readonly synced: boolean
  readonly serial: number
  /** Addresses of this server, for the target of the NS record. */
  readonly nameServers: { readonly a: readonly string[]; readonly aaaa: readonly string[] }
  hasNamespace(namespace: string): boolean
  service(namespace: string, name: string): DnsService | undefined
}

export interface DnsQuestion {
  readonly name: ZoneName
  /** The number in the message. */
  readonly type: number
}

/**
 * Returns the answer to one question. `rotation`, any integer, rotates address records, so that clients that use the
 * first one are distributed. If the zone is not synced, the answer is SERVFAIL; for an unknown name NXDOMAIN; for a
 * known name without data NODATA.
 */
export function answer(zone: ZoneView, question: DnsQuestion, rotation: number): DnsAnswer {
  if (!zone.synced) return { kind: 'servFail' }
  const found = recordsAt(zone, question.name, question.type)
  if (found === undefined) return { kind: 'nxDomain', soa: soaRecord(zone.serial) }
  const records = pick(found, question.type, rotation)
  if (records.length === 0) return { kind: 'noData', soa: soaRecord(zone.serial) }
  return { kind: 'answer', records, additional: additionalFor(zone, question.name, records) }
}

/**
 * Returns every record of a name that a query of this type may get. Undefined if the name does not exist; empty if it
 * has none of them, or only names below it have records.
 */
function recordsAt(zone: ZoneView, name: ZoneName, type: number): readonly DnsRecord[] | undefined {
  switch (name.kind) {
    case 'apex':
      return [soaRecord(zone.serial), { owner: ZONE, ttl: TTL_SECONDS, type: 'NS', target: NAME_SERVER }]
    case 'version':
      return [{ owner: formatZoneName(name), ttl: TTL_SECONDS, type: 'TXT', text: MCS_DNS_SCHEMA_VERSION }]
    case 'nameServer':
      return addressRecords(NAME_SERVER, zone.nameServers)
    case 'services':
      return []
    case 'namespace':
      return zone.hasNamespace(name.namespace) ? [] : undefined
    case 'unknown':
      return undefined
    case 'service':
    case 'protocol':
    case 'cluster':
    case 'port':
    case 'endpoint': {
      const service = zone.service(name.namespace, name.service)
      return service === undefined ? undefined : recordsOfService(service, name, type)
    }
  }
}

type NameBelowService = Extract<ZoneName, { service: string }>

function recordsOfService(service: DnsService, name: NameBelowService, type: number): readonly DnsRecord[] | undefined {
  const { a, aaaa, hosts, others = [] } = service
  // A headless service without a ready endpoint has no name. Clusters may have a share of single ports alone.
  if (service.type === 'Headless' && a.length + aaaa.length + hosts.length + others.length === 0) return undefined
  const owner = formatZoneName(name)
  switch (name.kind) {
    case 'service':
      // A service may have thousands of ports, and a query for an address must not cost more for that.
      return [
        ...addressRecords(owner, service),
        ...(type === TYPE_SRV || type === TYPE_ANY ? serviceRecords(service, owner, (ports) => ports) : []),
      ]
    case 'protocol':
      return hasProtocol(service, name.protocol) ? [] : undefined
    case 'port': {
      const key = portName(name.port, name.protocol)
      const records = serviceRecords(service, owner, (ports) => indexOf(ports).named.get(key) ?? [])
      return records.length > 0 ? records : undefined
    }
    case 'cluster':
      // The name is reserved and never has data. But names below it exist, and NXDOMAIN here would deny them (RFC
      // 8020).
      return [...hosts, ...others].some((host) => host.cluster === name.cluster) ? [] : undefined
    case 'endpoint': {
      const isIt = (h: DnsHost): boolean => h.hostname === name.hostname && h.cluster === name.cluster
      const host = hosts.find(isIt) ?? others.find(isIt)
      return host === undefined ? undefined : addressRecords(owner, host)
    }
  }
}

function hasProtocol({ ports, hosts }: DnsService, protocol: string): boolean {
  return [ports, ...hosts.map((host) => host.ports)].some((some) => indexOf(some).protocols.has(protocol))
}

interface PortIndex {
  /** Ports by portName(). */
  readonly named: ReadonlyMap<string, readonly NamedPort[]>
  readonly protocols: ReadonlySet<string>
}

/** A thousand hosts may share a list of thousands of ports, so that each query would search millions. */
const INDEXES = new WeakMap<readonly NamedPort[], PortIndex>()

function indexOf(ports: readonly NamedPort[]): PortIndex {
  const known = INDEXES.get(ports)
  if (known !== undefined) return known
  const index = {
    named: Map.groupBy(ports, ({ name, protocol }) => portName(name, protocol)),
    protocols: new Set(ports.map(({ protocol }) => protocol)),
  }
  INDEXES.set(ports, index)
  return index
}

function portName(name: string, protocol: string): string {
  return `${name}/${protocol}`
}

/**
 * The most SRV records of one answer. A message of 65,535 octets (RFC 1035 section 4.2.2) holds fewer, because each
 * record takes at least 30: RFC 2782 does not allow its target to be compressed.
 */
const MAX_SRV_RECORDS = 2048

/**
 * Returns SRV records, one for each target and port, even if several named ports share a number (RFC 2782), and at most
 * MAX_SRV_RECORDS.
 */
function serviceRecords(
  service: DnsService,
  owner: string,
  wanted: (ports: readonly NamedPort[]) => readonly NamedPort[],
): DnsRecord[] {
  const own = formatZoneName({ kind: 'service', namespace: service.namespace, service: service.name })
  const places = new Map<string, { readonly target: string; readonly port: number }>()
  const add = (target: string, ports: readonly NamedPort[]): void => {
    for (const { port } of wanted(ports)) {
      if (places.size >= MAX_SRV_RECORDS) return
      places.set(`${target}:${port}`, { target, port })
    }
  }
  add(own, service.ports)
  for (const host of service.hosts) {
    if (places.size >= MAX_SRV_RECORDS) break
    add(hostOwner(service, host), host.ports)
  }
  const unique = [...places.values()]
  const weight = Math.max(1, Math.floor(100 / unique.length))
  return unique.map(({ target, port }) => ({
    owner,
    ttl: TTL_SECONDS,
    type: 'SRV',
    priority: 0,
    weight,
    port,
    target,
  }))
}

function hostOwner(service: DnsService, host: DnsHost): string {
  const { namespace, name } = service
  return formatZoneName({ kind: 'endpoint', namespace, service: name, cluster: host.cluster, hostname: host.hostname })
}

interface Addresses {
  readonly a: readonly string[]
  readonly aaaa: readonly string[]
}

function addressRecords(owner: string, addresses: Addresses): DnsRecord[] {
  return [
    ...addresses.a.map((address): DnsRecord => ({ owner, ttl: TTL_SECONDS, type: 'A', address })),
    ...addresses.aaaa.map((address): DnsRecord => ({ owner, ttl: TTL_SECONDS, type: 'AAAA', address })),
  ]
}

const TYPE_NUMBERS: Readonly<Record<DnsRecord['type'], number>> = {
  A: TYPE_A,
  NS: TYPE_NS,
  SOA: TYPE_SOA,
  TXT: TYPE_TXT,
  AAAA: TYPE_AAAA,
  SRV: TYPE_SRV,
}

/** Returns the number of a record type in messages. */
export function typeNumber(record: DnsRecord): number {
  return TYPE_NUMBERS[record.type]
}

function pick(records: readonly DnsRecord[], type: number, rotation: number): readonly DnsRecord[] {
  // RFC 8482 section 4.1: a query for ANY may be answered with one of the existing record sets.
  const wanted = type === TYPE_ANY && records[0] !== undefined ? typeNumber(records[0]) : type
  const picked = records.filter((record) => typeNumber(record) === wanted)
  if (picked.length < 2 || (wanted !== TYPE_A && wanted !== TYPE_AAAA)) return picked
  const start = ((rotation % picked.length) + picked.length) % picked.length
  return [...picked.slice(start), ...picked.slice(0, start)]
}

/** Returns the addresses of the targets of SRV and NS records, if they are ours. */
function additionalFor(zone: ZoneView, name: ZoneName, records: readonly DnsRecord[]): readonly DnsRecord[] {
  if (records[0]?.type === 'NS') return addressRecords(NAME_SERVER, zone.nameServers)
  if (records[0]?.type !== 'SRV' || !('service' in name)) return []
  const service = zone.service(name.namespace, name.service)
  if (service === undefined) return []
  const targets = new Set(records.flatMap((record) => (record.type === 'SRV' ? [record.target] : [])))
  const own = formatZoneName({ kind: 'service', namespace: service.namespace, service: service.name })
  const ofHosts = service.hosts.flatMap((host) => {
    const owner = hostOwner(service, host)
    return targets.has(owner) ? addressRecords(owner, host) : []
  })
  return targets.has(own) ? addressRecords(own, service) : ofHosts
}

/** True for types that are refused whatever the name. */
export function isTransfer(type: number): boolean {
  return type >= FIRST_TRANSFER_TYPE && type <= LAST_TRANSFER_TYPE
}

export function soaRecord(serial: number): SoaRecord {
  return {
    owner: ZONE,
    ttl: TTL_SECONDS,
    type: 'SOA',
    primary: NAME_SERVER,
    admin: `hostmaster.${ZONE}`,
    serial,
    ...SOA_TIMERS,
  }
}
