/** Turns Services, ServiceExports and EndpointSlices into the records that other clusters get. Pure. */
import {
  type Address,
  type FamilyName,
  type Prefix,
  classifyAddress,
  containsAddress,
  familyName,
  familyNumber,
  parseAddress,
} from '../../model/addresses/addresses.ts'
import {
  type EndpointSlice,
  type EndpointSliceBody,
  type ImportPort,
  type PublishedEndpoint,
  type Service,
  type ServiceExport,
  type ServiceExportBody,
  type ServiceImportType,
  type SliceEndpoint,
  excessNameLength,
} from '../../model/model.ts'
import { type Problem, problem as toProblem } from '../../model/reasons/reasons.ts'
import { RECORD_FORMS, addressIn, textProblem } from '../../model/grammar/grammar.ts'
import { ANNOTATION_DRAIN, drainOf, podKey } from '../../model/services/services.ts'

/**
 * A message about what is left out of an export and why. `reason` is set if status and `diagnose` use a code for it.
 */
export interface LeftOutNote {
  readonly message: string
  readonly reason?: 'AddressOutsidePods' | 'HostnameTooLong' | 'OfferCut'
}

const ENDPOINT = RECORD_FORMS.EndpointSlice.fields.endpoints.item.fields

type Families = ServiceExportBody['ipFamilies']

/**
 * Takes settings from the Service, and labels and annotations only from the export's spec (KEP-1645 "Exporting
 * Services").
 */
export function exportBody(
  object: ServiceExport,
  service: Service,
  slices: readonly EndpointSlice[],
): ServiceExportBody {
  const spec = service.spec ?? {}
  const timeout = spec.sessionAffinityConfig?.clientIP?.timeoutSeconds
  const sticky = spec.sessionAffinity === 'ClientIP'
  const selectors = object.spec?.clusterSelectors ?? []
  const drain = drainOf(object)
  return {
    kind: 'ServiceExport',
    uid: object.metadata.uid ?? object.metadata.creationTimestamp ?? 'none',
    type: exportType(service),
    ports: (spec.ports ?? []).map(servicePort),
    sessionAffinity: sticky ? 'ClientIP' : 'None',
    ...(sticky && timeout !== undefined ? { sessionAffinityTimeoutSeconds: timeout } : {}),
    ...(spec.internalTrafficPolicy === undefined ? {} : { internalTrafficPolicy: spec.internalTrafficPolicy }),
    ...(spec.trafficDistribution === undefined ? {} : { trafficDistribution: spec.trafficDistribution }),
    ipFamilies: families(service, slices),
    exportedLabels: object.spec?.exportedLabels ?? {},
    exportedAnnotations: object.spec?.exportedAnnotations ?? {},
    ...(selectors.length === 0 ? {} : { clusterSelectors: selectors }),
    ...(drain === undefined ? {} : { drained: true }),
    ...(drain === 'now' ? { drainedNow: true } : {}),
  }
}

/** The type that the ServiceImport of a Service has. */
export function exportType({ spec }: Service): ServiceImportType {
  return spec?.clusterIP === 'None' ? 'Headless' : 'ClusterSetIP'
}

/** A note on an annotation that says neither that the export is drained nor that it is not. */
export function drainNote(object: ServiceExport): LeftOutNote | undefined {
  const value = object.metadata.annotations?.[ANNOTATION_DRAIN]
  if (value === undefined || value === 'false' || drainOf(object) !== undefined) return undefined
  const shown = JSON.stringify(value.slice(0, 100))
  return { message: `annotation ${ANNOTATION_DRAIN}: ${shown}: expected "true", "now" or "false"; it is not drained` }
}

export interface SlicePlace {
  readonly cluster: string
  readonly namespace: string
  readonly service: string
  /** Pod CIDRs. Other clusters cannot reach addresses outside them. */
  readonly podPrefixes: readonly Prefix[]
  /** Why IPv6 addresses are left out although the cluster has them. */
  readonly ipv6LeftOut?: string | undefined
  /** Whether endpoints name their pod: DNS needs it for a service of two families, to join the addresses of a pod. */
  readonly reportsPods?: boolean
}

/**
 * The slice without the parts that other clusters cannot use. `notes` gets each omission. Undefined for address type
 * FQDN, and for a family without a pod CIDR in this cluster. Endpoints are sorted by address, so that a mere change of
 * order publishes nothing.
 */
export function sliceBody(
  slice: EndpointSlice,
  place: SlicePlace,
  notes: LeftOutNote[],
): EndpointSliceBody | undefined {
  const { addressType } = slice
  if (addressType !== 'IPv4' && addressType !== 'IPv6') {
    notes.push({ message: `EndpointSlice ${slice.metadata.name} has address type ${addressType} and is left out` })
    return undefined
  }
  if (!place.podPrefixes.some(({ family }) => family === familyNumber(addressType))) {
    const why = addressType === 'IPv6' ? place.ipv6LeftOut : undefined
    const message = `${addressType} endpoints are left out: ${why ?? 'this cluster has no pod CIDR of this IP family'}`
    notes.push({ message })
    return undefined
  }
  const endpoints = (slice.endpoints ?? []).flatMap((endpoint) =>
    publishedEndpoint(endpoint, addressType, place, notes),
  )
  return {
    kind: 'EndpointSlice',
    service: place.service,
    addressType,
    ports: (slice.ports ?? []).map(({ name, protocol, port, appProtocol }) => ({
      ...(name === undefined || name === '' ? {} : { name }),
      protocol: protocol ?? 'TCP',
      ...(port === undefined ? {} : { port }),
      ...(appProtocol === undefined || appProtocol === '' ? {} : { appProtocol }),
    })),
    endpoints: endpoints.sort((a, b) => compareTexts(a.addresses.join(), b.addresses.join())),
  }
}

function publishedEndpoint(
  endpoint: SliceEndpoint,
  addressType: FamilyName,
  place: SlicePlace,
  notes: LeftOutNote[],
): PublishedEndpoint[] {
  const addresses = endpoint.addresses.filter((text) => {
    const problem = addressProblem(text, addressType, place.podPrefixes)
    if (problem !== undefined) {
      const message = `endpoint ${text} is left out: ${problem.message} (${problem.reason})`
      notes.push(problem.reason === 'AddressOutsidePods' ? { message, reason: problem.reason } : { message })
    }
    return problem === undefined
  })
  if (addresses.length === 0) return []
  const { ready, serving, terminating } = endpoint.conditions ?? {}
  const hostname = publishedHostname(endpoint.hostname, place, notes)
  const pod = place.reportsPods === true ? podKey(endpoint) : undefined
  return [
    {
      addresses,
      ...(hostname === undefined ? {} : { hostname }),
      ...(endpoint.nodeName === undefined ? {} : { nodeName: endpoint.nodeName }),
      ...usableTopology(endpoint, (what) => notes.push({ message: `endpoint ${addresses.join()}: ${what}` })),
      conditions: {
        ...(ready === undefined ? {} : { ready }),
        ...(serving === undefined ? {} : { serving }),
        ...(terminating === undefined ? {} : { terminating }),
      },
      ...(pod === undefined ? {} : { pod }),
    },
  ]
}

/**
 * Why other clusters cannot use the address. Undefined if they can. Without `inside`, any usable address is accepted.
 */
export function addressProblem(
  text: string,
  addressType: FamilyName,
  inside: readonly Prefix[] | undefined,
): Problem | undefined {
  const address = addressIn(text, addressType)
  if (address === undefined) {
    const what = tryParse(text) === undefined ? 'IP' : addressType
    return toProblem('InvalidValue', `not an ${what} address`)
  }
  const kind = classifyAddress(address)
  if (kind !== 'usable') return toProblem('AddressOutsidePods', `a ${kind} address`)
  const isInside = inside === undefined || inside.some((prefix) => containsAddress(prefix, address))
  return isInside ? undefined : toProblem('AddressOutsidePods', 'outside the pod CIDRs')
}

function publishedHostname(hostname: string | undefined, place: SlicePlace, notes: LeftOutNote[]): string | undefined {
  if (hostname === undefined || hostname === '') return undefined
  const excess = excessNameLength({ hostname, ...place })
  if (textProblem(ENDPOINT.hostname, hostname) === undefined && excess === 0) return hostname
  const why = excess > 0 ? `its DNS name is ${excess} characters too long` : 'not a DNS label'
  const message = `hostname ${JSON.stringify(hostname)} is left out: ${why}`
  notes.push(excess > 0 ? { message, reason: 'HostnameTooLong' } : { message })
  return undefined
}

function servicePort({
  name,
  protocol,
  port,
  appProtocol,
}: NonNullable<NonNullable<Service['spec']>['ports']>[number]): ImportPort {
  return {
    ...(name === undefined || name === '' ? {} : { name }),
    protocol: protocol ?? 'TCP',
    port,
    ...(appProtocol === undefined || appProtocol === '' ? {} : { appProtocol }),
  }
}

/** An API server sets ipFamilies, but a plain file may lack it. Then the cluster IPs decide, else the slices. */
function families(service: Service, slices: readonly EndpointSlice[]): Families {
  const named = service.spec?.ipFamilies ?? []
  if (named.length > 0) return [...new Set(named)]
  const ips = [...(service.spec?.clusterIPs ?? []), service.spec?.clusterIP ?? ''].flatMap((ip) => tryParse(ip) ?? [])
  const found = new Set(ips.map(({ family }) => familyName(family)))
  if (found.size > 0) return [...found]
  const types = new Set(slices.flatMap(({ addressType }) => (addressType === 'FQDN' ? [] : [addressType])))
  return types.size > 0 ? [...types].sort() : ['IPv4']
}

function tryParse(text: string): Address | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}

function compareTexts(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0
}

// Checks the topology of endpoints, both published and imported. Pure.

/**
 * The usable part of zone and zone hints (discovery.k8s.io/v1): a zone must be a label value. Each omission goes to
 * `note`; the endpoint stays usable without it. Too many hints are left out as a whole, since a subset would hide the
 * endpoint from some zones.
 */
export function usableTopology(
  { zone, hints }: SliceEndpoint,
  note: (what: string) => void,
): Pick<SliceEndpoint, 'zone' | 'hints'> {
  const isZone = (name: string): boolean => {
    if (textProblem(ENDPOINT.zone, name) === undefined) return true
    note(`zone ${JSON.stringify(name.slice(0, 100))} is left out: not a label value`)
    return false
  }
  const names = [...new Set((hints?.forZones ?? []).map(({ name }) => name))]
  const { most } = ENDPOINT.hints.fields.forZones
  if (names.length > most) note(`hints for ${names.length} zones are left out: at most ${most}`)
  const forZones = names.length > most ? [] : names.filter(isZone).sort()
  return {
    ...(zone === undefined || zone === '' || !isZone(zone) ? {} : { zone }),
    ...(forZones.length === 0 ? {} : { hints: { forZones: forZones.map((name) => ({ name })) } }),
  }
}
