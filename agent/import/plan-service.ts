/** Plans one imported service: its ServiceImport and its EndpointSlices. Pure. */
import {
  type Address,
  type Prefix,
  type PrefixPair,
  classifyAddress,
  clustersetIpv4,
  clustersetIpv6,
  containsAddress,
  formatAddress,
  formatPrefix,
  parseAddress,
  parsePrefix,
  podFamilies,
  prefixPairs,
  toGlobalText,
} from '../../model/addresses/addresses.ts'
import {
  APP_MANAGED_BY_SEALANE,
  CARRIED_FAMILIES,
  type ClusterSpec,
  type ConditionFinding,
  type EndpointPort,
  type EndpointSlice,
  type EndpointSliceBody,
  LABEL_APP_MANAGED_BY,
  LABEL_MANAGED_BY,
  LABEL_SERVICE_NAME,
  LABEL_SOURCE_CLUSTER,
  MANAGED_BY_SEALANE,
  type PublishedEndpoint,
  type ServiceImport,
  type ServiceImportSpec,
  type ServiceImportType,
  type ServiceKey,
  type SliceEndpoint,
  endpointHostname,
  nameHash,
} from '../../model/model.ts'
import { ANNOTATION_CALLERS, callersText } from '../../model/access/access.ts'
import { RECORD_FORMS, textProblem } from '../../model/grammar/grammar.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import {
  ANNOTATION_DERIVED_SERVICE,
  ANNOTATION_DRAINED,
  ANNOTATION_DRAINED_NOW,
  ANNOTATION_ENDS_OPEN,
  type Drain,
  ANNOTATION_PODS,
  type ClusterCandidate,
  type ConflictFinding,
  type ExposedPort,
  type IpFamily,
  type MergedService,
  believedProperties,
  exposedPorts,
  mergeServices,
  podsText,
} from '../../model/services/services.ts'
import { KeyedMemo } from '../../reconcile/reconcile.ts'
import { type PublishedSlice, addressProblem, usableTopology } from '../export/export.ts'
import type { Dropped, ExportRecord, ServiceFacts } from './clusterset-records.ts'

const ENDPOINT = RECORD_FORMS.EndpointSlice.fields.endpoints.item.fields

export interface ServiceInput {
  readonly key: ServiceKey
  readonly facts: ServiceFacts
  /** Id of this cluster. */
  readonly own: string
  readonly clusterset?: string | undefined
  /** Address families of this cluster's own pods. */
  readonly ownFamilies: readonly IpFamily[]
  /** Pod CIDRs of this cluster. An endpoint of its own outside them is left out, whatever the broker reports. */
  readonly ownPods: readonly string[]
  /** This cluster's slices, more recent than the broker's. Undefined if this cluster does not export the service. */
  readonly ownSlices: readonly PublishedSlice[] | undefined
  /** Cluster facts by id. Addresses of a cluster without facts cannot be translated, so its slices wait. */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  /**
   * Set while a cluster that was part of the service has not been shown since the broker lost its data. The
   * ServiceImport then stays as it is, with these ports, this type and these families.
   */
  readonly held: Pick<ServiceImportSpec, 'ports' | 'type' | 'ipFamilies'> | undefined
  /** Addresses to keep while the broker has not reported the current ones. */
  readonly previousIps: readonly string[]
  readonly clustersetIpRange: Prefix | undefined
  /** Clusters that are treated as dead. Their endpoints are left out. */
  readonly expired: ReadonlySet<string>
}

/** A slice, and what was left out of it. */
interface PlannedSlice {
  readonly slice: EndpointSlice | undefined
  readonly dropped: readonly Dropped[]
}

/** Cache of the slices of one service. If one of 5,000 endpoints changes, 49 of 50 slices are reused. */
export type SliceMemo = KeyedMemo<PlannedSlice>

export interface ServicePlan {
  /** Undefined while the ServiceImport is held. */
  readonly serviceImport: ServiceImport | undefined
  /** The condition Ready of the ServiceImport. */
  readonly ready: ConditionFinding
  readonly clusters: readonly string[]
  readonly slices: readonly EndpointSlice[]
  /** What cluster selectors are evaluated with. Undefined if the service has none. */
  readonly selection: ServiceSelection | undefined
  /** Conflicts of this cluster's export. Undefined if there are none. */
  readonly ownFinding: ConflictFinding | undefined
  readonly dropped: readonly Dropped[]
}

export interface ServiceSelection {
  /** ClusterProperties of this cluster. */
  readonly importer: ClusterCandidate['properties']
  /** The exporting clusters, whatever the state of their endpoints (KEP-5939). */
  readonly candidates: readonly ClusterCandidate[]
}

/** Takes a service with at least one export and, to save work, the cache of its previous plan. */
export function planService(input: ServiceInput, memo: SliceMemo = new KeyedMemo()): ServicePlan {
  const { facts, own, held } = input
  const merged = mergeServices(
    facts.exports.map(({ key: { cluster }, createdAtMs, body }) => {
      return { cluster, createdAtMs, body, carried: carriedFamilies(input, cluster) }
    }),
  )
  const dropped: Dropped[] = []
  const addresses = planAddresses(input, merged.spec, dropped)
  const type = held?.type ?? merged.spec.type
  const families = held?.ipFamilies ?? addresses.usable
  const slices = facts.exports.flatMap((exported) => {
    const cluster = exported.key.cluster
    const ports =
      held === undefined ? (merged.portsOf.get(cluster) ?? []) : exposedPorts(held.ports, exported.body.ports)
    return planSlices({ input, memo, dropped }, exported, { ports, type, families })
  })
  memo.endRound()
  return {
    serviceImport: held === undefined ? importObject(input.key, merged, addresses) : undefined,
    ready: addresses.ready,
    clusters: merged.clusters,
    slices,
    selection: merged.spec.clusterSelectors === undefined ? undefined : selectionOf(input, merged.clusters),
    ownFinding: merged.conflicts.get(own),
    dropped,
  }
}

function selectionOf({ own, clusters, clusterset }: ServiceInput, exporting: readonly string[]): ServiceSelection {
  const properties = (id: string): ClusterCandidate['properties'] =>
    believedProperties(clusters.get(id)?.properties, id, clusterset)
  return { importer: properties(own), candidates: exporting.map((id) => ({ id, properties: properties(id) })) }
}

/** Undefined while the cluster's facts are unknown. */
function carriedFamilies({ own, ownFamilies, clusters }: ServiceInput, id: string): readonly IpFamily[] | undefined {
  if (id === own) return ownFamilies
  const spec = clusters.get(id)
  return spec === undefined ? undefined : podFamilies(spec)
}

function importObject(
  key: ServiceKey,
  merged: MergedService,
  { ips, ipFamilies }: Pick<AddressPlan, 'ips' | 'ipFamilies'>,
): ServiceImport {
  const [namespace = '', name = ''] = key.split('/')
  // Only this cluster's users order Services here.
  const { [ANNOTATION_DERIVED_SERVICE]: _ordered, ...annotations } = merged.annotations
  return {
    apiVersion: 'multicluster.x-k8s.io/v1beta1',
    kind: 'ServiceImport',
    metadata: {
      name,
      namespace,
      // The label comes last, so that no exported label can replace it.
      labels: { ...merged.labels, [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE },
      ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    },
    spec: { ...merged.spec, ipFamilies, ...(ips === undefined ? {} : { ips }) },
  }
}

interface SlicePlanning {
  readonly input: ServiceInput
  readonly memo: SliceMemo
  readonly dropped: Dropped[]
}

function planSlices(
  { input, memo, dropped }: SlicePlanning,
  exported: ExportRecord,
  exposure: {
    readonly ports: readonly ExposedPort[]
    readonly type: ServiceImportType
    readonly families: readonly IpFamily[]
  },
): EndpointSlice[] {
  const cluster = exported.key.cluster
  const isOwn = cluster === input.own
  if (!isOwn && input.expired.has(cluster)) return []
  const spec = input.clusters.get(cluster)
  if (!isOwn && spec === undefined) {
    const message = `the addresses of cluster ${cluster} are unknown`
    dropped.push({ what: `${cluster}/${input.key}`, reason: 'ClusterUnknown', message })
    return []
  }
  const received = input.facts.slices.filter(({ key }) => key.cluster === cluster)
  const exposed = JSON.stringify(exposure.ports)
  const callers = isOwn ? undefined : callersText(exported.body.offeredTo, input.own, exported.body.keepsOpen)
  const { drained = false, drainedNow = false, endsOpen = false } = exported.body
  const drain: Drain | undefined = drained ? (drainedNow ? 'now' : 'open connections go on') : undefined
  const clusterNow = spec?.drained === true && spec.drainedNow === true
  const bodies = (isOwn ? input.ownSlices : undefined) ?? received.map(({ key, body }) => ({ name: key.name, body }))
  return bodies.flatMap(({ name, body }) => {
    // DNS would give addresses that no pod here can use.
    if (!exposure.families.includes(body.addressType)) return []
    const inside = isOwn ? input.ownPods : (spec?.podCIDRs ?? [])
    const source = {
      key: input.key,
      cluster,
      name,
      body,
      inside,
      callers,
      drain,
      clusterNow,
      endsOpen: endsOpen && !isOwn,
      spec: isOwn ? undefined : spec,
    }
    const inputs = [body, source.spec, inside, callers, drain, clusterNow, endsOpen, exposed, exposure.type]
    const planned = memo.get(`${cluster}/${name}`, inputs, () => {
      const left: Dropped[] = []
      return { slice: importedSlice(source, exposure, left), dropped: left }
    })
    dropped.push(...planned.dropped)
    return planned.slice ?? []
  })
}

// Turns a published slice into an object of the importing cluster (KEP-1645 "Tracking Endpoints"). Pure.

interface SliceSource {
  readonly key: ServiceKey
  readonly cluster: string
  /** Name of the slice in its own cluster. */
  readonly name: string
  readonly body: EndpointSliceBody
  /** Facts of the source cluster. Undefined for this cluster itself, whose addresses are not translated. */
  readonly spec: ClusterSpec | undefined
  /** Pod CIDRs of the source cluster, before translation. */
  readonly inside: readonly string[]
  /** The namespaces of this cluster that may call. Undefined: all. */
  readonly callers: string | undefined
  /** How its exporter drains the service. Undefined: it does not. */
  readonly drain: Drain | undefined
  /** The whole cluster is drained now. A CRD of an earlier release does not keep this in the Cluster. */
  readonly clusterNow: boolean
  /** ServiceExportBody.endsOpen */
  readonly endsOpen: boolean
}

interface Translation {
  readonly pairs: readonly PrefixPair[]
  readonly inside: readonly Prefix[]
}

/**
 * The slice with translated addresses, a hostname on every endpoint, and only the ports that its cluster exposes, under
 * their merged names. Undefined if the slice has none of the ports of a service with a clusterset IP.
 */
function importedSlice(
  source: SliceSource,
  exposure: { readonly ports: readonly ExposedPort[]; readonly type: ServiceImportType },
  dropped: Dropped[],
): EndpointSlice | undefined {
  const { body, cluster, spec } = source
  const [namespace = '', service = ''] = source.key.split('/')
  const exposed = new Map(exposure.ports.map((port) => [`${port.protocol}/${port.ownName}`, port]))
  const ports = body.ports.flatMap((port) => exposedPort(port, exposed) ?? [])
  // Behind a clusterset IP, a slice without a port serves nothing. For a headless service, its addresses still count.
  if (exposure.type === 'ClusterSetIP' && body.ports.length > 0 && ports.length === 0) return undefined
  const translation: Translation = {
    pairs: spec === undefined ? [] : prefixPairs(spec),
    inside: source.inside.map((text) => parsePrefix(text)),
  }
  const imported = body.endpoints.flatMap((endpoint) =>
    importedEndpoint(source, endpoint, translation, dropped).map((one) => ({ one, pod: endpoint.pod })),
  )
  const pods = podsText(imported.map(({ pod }) => pod))
  const annotations = {
    ...(pods === undefined ? {} : { [ANNOTATION_PODS]: pods }),
    ...(source.callers === undefined ? {} : { [ANNOTATION_CALLERS]: source.callers }),
    ...(source.drain === undefined ? {} : { [ANNOTATION_DRAINED]: 'true' }),
    ...(source.endsOpen ? { [ANNOTATION_ENDS_OPEN]: 'true' } : {}),
    ...(source.drain === 'now' || source.clusterNow ? { [ANNOTATION_DRAINED_NOW]: 'true' } : {}),
  }
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      name: `${service}-${cluster}-${nameHash(service, cluster, source.name)}`,
      namespace,
      labels: {
        [LABEL_SERVICE_NAME]: service,
        [LABEL_SOURCE_CLUSTER]: cluster,
        [LABEL_MANAGED_BY]: MANAGED_BY_SEALANE,
        [LABEL_APP_MANAGED_BY]: APP_MANAGED_BY_SEALANE,
      },
      ...(Object.keys(annotations).length === 0 ? {} : { annotations }),
    },
    addressType: body.addressType,
    ports,
    endpoints: imported.map(({ one }) => one),
  }
}

/** `exposed` has the ports by protocol and own name, each of which occurs once in a Service. */
function exposedPort(port: EndpointPort, exposed: ReadonlyMap<string, ExposedPort>): EndpointPort | undefined {
  const protocol = port.protocol ?? 'TCP'
  const match = exposed.get(`${protocol}/${port.name ?? ''}`)
  if (match === undefined) return undefined
  return {
    ...(match.mergedName === '' ? {} : { name: match.mergedName }),
    protocol,
    ...(port.port === undefined ? {} : { port: port.port }),
    ...(port.appProtocol === undefined ? {} : { appProtocol: port.appProtocol }),
  }
}

function importedEndpoint(
  source: SliceSource,
  endpoint: PublishedEndpoint,
  { pairs, inside }: Translation,
  dropped: Dropped[],
): SliceEndpoint[] {
  const what = `${source.cluster}/EndpointSlice/${source.key}/${source.name}`
  const good = endpoint.addresses.filter((text) => {
    const problem = addressProblem(text, source.body.addressType, inside)
    if (problem !== undefined)
      dropped.push({ what, reason: problem.reason, message: `endpoint ${JSON.stringify(text)}: ${problem.message}` })
    return problem === undefined
  })
  if (good.length === 0) return []
  const usable = withoutMalformed(endpoint, (note) =>
    dropped.push({ what, reason: 'InvalidValue', message: `endpoint ${JSON.stringify(good[0])}: ${note}` }),
  )
  const { conditions, nodeName } = usable
  // Made from the original address: the name must be the same for every importer, and before and after renumbering.
  const hostname = endpointHostname({ ...usable, addresses: good })
  return [
    {
      addresses: good.map((text) => toGlobalText(pairs, text)),
      ...(hostname === undefined ? {} : { hostname }),
      ...usableTopology(endpoint, (note) =>
        dropped.push({ what, reason: 'InvalidValue', message: `endpoint ${JSON.stringify(good[0])}: ${note}` }),
      ),
      // A node name of another cluster means nothing here, or could match a wrong node.
      ...(source.spec === undefined && nodeName !== undefined ? { nodeName } : {}),
      ...(conditions === undefined ? {} : { conditions }),
    },
  ]
}

/** The endpoint without malformed names of itself and its node: it stays usable without them. */
function withoutMalformed(endpoint: PublishedEndpoint, note: (what: string) => void): PublishedEndpoint {
  const { hostname, nodeName, pod, ...others } = endpoint
  const isGood = (field: 'hostname' | 'nodeName' | 'pod', value: string): boolean => {
    const wrong = textProblem(ENDPOINT[field], value)
    if (wrong !== undefined) note(`${field} is left out: ${wrong}`)
    return wrong === undefined
  }
  return {
    ...others,
    ...(hostname !== undefined && isGood('hostname', hostname) ? { hostname } : {}),
    ...(nodeName !== undefined && isGood('nodeName', nodeName) ? { nodeName } : {}),
    ...(pod !== undefined && isGood('pod', pod) ? { pod } : {}),
  }
}

// Plans the families and clusterset IPs of a ServiceImport (KEP-1645 "Exporting Services", "ClusterSetIP"). Pure.

interface AddressInput {
  readonly key: string
  readonly facts: Pick<ServiceFacts, 'ips'>
  readonly previousIps: readonly string[]
  readonly clustersetIpRange: Prefix | undefined
  /** Address families of this cluster's own pods. */
  readonly ownFamilies: readonly IpFamily[]
}

interface AddressPlan {
  /** In the order of ipFamilies. Undefined if there are none. */
  readonly ips: readonly string[] | undefined
  readonly ipFamilies: readonly IpFamily[]
  /** Families that pods of this cluster can use. Endpoints of other families are not imported. */
  readonly usable: readonly IpFamily[]
  readonly ready: ConditionFinding
}

/**
 * Uses the families of the merged service that this cluster's pods have. A headless service needs no address. A
 * ClusterSetIP service is ready once it has one: the broker assigns the IPv4 address, and the IPv6 address is derived
 * from it.
 */
function planAddresses(
  input: AddressInput,
  spec: Pick<ServiceImportSpec, 'type' | 'ipFamilies'>,
  dropped: Dropped[],
): AddressPlan {
  const merged = spec.ipFamilies ?? ['IPv4']
  const own = CARRIED_FAMILIES.filter((family) => input.ownFamilies.includes(family))
  const usable = merged.filter((family) => own.includes(family))
  if (usable.length === 0) {
    const message = `the service has only ${merged.join(' and ')} addresses, and the pods of this cluster use ${own.join(' and ')}`
    return { ips: undefined, ipFamilies: merged, usable, ready: finding('False', 'IPFamilyNotSupported', message) }
  }
  const families = { ipFamilies: usable, usable }
  if (spec.type === 'Headless')
    return { ips: undefined, ...families, ready: finding('True', 'Ready', 'headless: DNS answers its name') }
  const given = input.facts.ips?.body.ips ?? input.previousIps.map(givenFor)
  const address = firstUsable(given, input, dropped)
  if (address === undefined) {
    return {
      ips: undefined,
      ...families,
      ready: finding('False', 'Pending', 'the broker has not assigned a clusterset IP yet'),
    }
  }
  const ips = usable.map((family) => formatAddress(family === 'IPv4' ? address : clustersetIpv6(address)))
  return { ips, ...families, ready: finding('True', 'Ready', 'the import has its clusterset IP') }
}

/** The IPv4 address that a ServiceImport's address was derived from. */
function givenFor(text: string): string {
  const address = tryParse(text)
  const v4 = address === undefined ? undefined : clustersetIpv4(address)
  return v4 === undefined ? text : formatAddress(v4)
}

function firstUsable(
  texts: readonly string[],
  { key, clustersetIpRange }: AddressInput,
  dropped: Dropped[],
): Address | undefined {
  const addresses = texts.flatMap((text) => {
    const problem = ipProblem(text, clustersetIpRange)
    if (problem !== undefined) dropped.push({ what: `/ClusterSetIP/${key}`, reason: 'InvalidValue', message: problem })
    return problem === undefined ? [parseAddress(text)] : []
  })
  return addresses[0]
}

function ipProblem(text: string, range: Prefix | undefined): string | undefined {
  const address = tryParse(text)
  if (address === undefined) return `${JSON.stringify(text)} is not an IP address`
  if (address.family !== 4) return `${text} is not an IPv4 address`
  // Clusterset IPs come from class E, which classifyAddress() accepts.
  if (classifyAddress(address) !== 'usable') return `${text} is not a usable address`
  if (range !== undefined && !containsAddress(range, address)) {
    return `${text} is outside the clusterset IP range ${formatPrefix(range)}`
  }
  return undefined
}

function tryParse(text: string): Address | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}

function finding(status: 'True' | 'False', reason: ReasonCode, message: string): ConditionFinding {
  return { type: 'Ready', status, reason, message }
}
