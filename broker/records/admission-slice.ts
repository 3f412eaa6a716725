/** Validates an EndpointSlice: other clusters send packets to its addresses and put them into DNS answers. Pure. */
import {
  type EndpointSliceBody,
  MAX_ZONE_HINTS,
  excessNameLength,
  isDnsSubdomain,
  isLabelValue,
} from '../../model/model.ts'
import { isPodKey } from '../../model/services/services.ts'
import { type Prefix, containsAddress, formatPrefix } from '../../model/addresses/addresses.ts'
import {
  type Refusal,
  checkCount,
  checkLabel,
  checkOneOf,
  checkPort,
  checkQualifiedName,
  describeUnusable,
  first,
  parseOrUndefined,
  quote,
  refusal,
} from './admission-checks.ts'

export interface SliceContext {
  readonly cluster: string
  readonly namespace: string
  readonly podCIDRs: readonly Prefix[]
}

/** Limits of discovery.k8s.io/v1: an endpoint has 1 to 100 addresses, a slice at most 1000 endpoints and 100 ports. */
const MAX_ENDPOINTS = 1000
const MAX_ADDRESSES = 100
const MAX_PORTS = 100
/**
 * Limit of all addresses of a slice. Kubernetes itself gives each endpoint one. The broker and every member process
 * each address.
 */
export const MAX_SLICE_ADDRESSES = 2000

export function admitSlice(body: EndpointSliceBody, context: SliceContext): Refusal | undefined {
  // Formatted once for all endpoints.
  const own = context.podCIDRs.map(formatPrefix).join(', ')
  return first(
    () => checkSize(body),
    () => checkLabel('service', body.service),
    () => checkOneOf('addressType', body.addressType, ['IPv4', 'IPv6']),
    () => checkCount('ports', body.ports.length, 0, MAX_PORTS),
    ...body.ports.map((port, i) => () => admitSlicePort(`ports[${i}]`, port)),
    () => checkCount('endpoints', body.endpoints.length, 0, MAX_ENDPOINTS),
    ...body.endpoints.map(
      (endpoint, i) => () => admitSliceEndpoint(`endpoints[${i}]`, endpoint, body, { ...context, own }),
    ),
  )
}

/** Also called before any other work on the slice. */
export function checkSize({ endpoints }: EndpointSliceBody): Refusal | undefined {
  const addresses = endpoints.reduce((sum, one) => sum + one.addresses.length, 0)
  if (addresses <= MAX_SLICE_ADDRESSES) return undefined
  return refusal(
    'endpoints',
    `${addresses} addresses: expected at most ${MAX_SLICE_ADDRESSES} in one slice`,
    'RecordTooLarge',
  )
}

function admitSlicePort(field: string, port: EndpointSliceBody['ports'][number]): Refusal | undefined {
  return first(
    () => (port.port === undefined ? undefined : checkPort(`${field}.port`, port.port)),
    () => checkOneOf(`${field}.protocol`, port.protocol ?? 'TCP', ['TCP', 'UDP', 'SCTP']),
    () => (port.name === undefined || port.name === '' ? undefined : checkLabel(`${field}.name`, port.name)),
    () => checkQualifiedName(`${field}.appProtocol`, port.appProtocol),
  )
}

function admitSliceEndpoint(
  field: string,
  endpoint: EndpointSliceBody['endpoints'][number],
  body: EndpointSliceBody,
  context: SliceContext & { readonly own: string },
): Refusal | undefined {
  return first(
    () => checkCount(`${field}.addresses`, endpoint.addresses.length, 1, MAX_ADDRESSES),
    ...endpoint.addresses.map((text, i) => () => admitAddress(`${field}.addresses[${i}]`, text, body, context)),
    () => admitHostname(`${field}.hostname`, endpoint.hostname, body, context),
    () =>
      endpoint.nodeName === undefined || isDnsSubdomain(endpoint.nodeName)
        ? undefined
        : refusal(`${field}.nodeName`, `${quote(endpoint.nodeName)}: expected an RFC 1123 subdomain`),
    () => (endpoint.zone === undefined ? undefined : checkZone(`${field}.zone`, endpoint.zone)),
    () => checkPod(`${field}.pod`, endpoint.pod),
    () => checkCount(`${field}.hints.forZones`, zoneHints(endpoint).length, 0, MAX_ZONE_HINTS),
    ...zoneHints(endpoint).map(
      ({ name }, i) =>
        () =>
          checkZone(`${field}.hints.forZones[${i}]`, name),
    ),
  )
}

function zoneHints(endpoint: EndpointSliceBody['endpoints'][number]): readonly { readonly name: string }[] {
  return endpoint.hints?.forZones ?? []
}

/** Zones are values of a Node's label. */
function checkZone(field: string, zone: string): Refusal | undefined {
  if (zone !== '' && isLabelValue(zone)) return undefined
  return refusal(field, `${quote(zone)}: expected a Kubernetes label value that is not empty`)
}

function admitAddress(
  field: string,
  text: string,
  body: EndpointSliceBody,
  context: SliceContext & { readonly own: string },
): Refusal | undefined {
  const address = parseOrUndefined(text)
  if (address === undefined || `IPv${address.family}` !== body.addressType) {
    return refusal(field, `${quote(text)}: expected an ${body.addressType} address`)
  }
  const { own } = context
  const unusable = describeUnusable(address)
  if (unusable !== undefined)
    return refusal(
      field,
      `${quote(text)} is ${unusable}: expected one inside the cluster's pod CIDRs ${own}`,
      'AddressOutsidePods',
    )
  if (context.podCIDRs.some((prefix) => containsAddress(prefix, address))) return undefined
  return refusal(
    field,
    `${quote(text)} is outside the cluster's pod CIDRs: expected one inside ${own}`,
    'AddressOutsidePods',
  )
}

/** A hostname becomes part of a DNS name of its own, which must not be too long. */
function admitHostname(
  field: string,
  hostname: string | undefined,
  body: EndpointSliceBody,
  context: SliceContext,
): Refusal | undefined {
  if (hostname === undefined || hostname === '') return undefined
  const bad = checkLabel(field, hostname)
  if (bad !== undefined) return bad
  const { cluster, namespace } = context
  const { service } = body
  const excess = excessNameLength({ hostname, cluster, service, namespace })
  if (excess === 0) return undefined
  const characters = hostname.length + cluster.length + service.length + namespace.length
  return refusal(
    field,
    `${quote(hostname)}: the name ${quote(`${hostname}.${cluster}.${service}.…`)} needs ${characters} characters ` +
      `in hostname, cluster, service and namespace: expected at most ${characters - excess} together`,
    'HostnameTooLong',
  )
}

function checkPod(field: string, pod: string | undefined): Refusal | undefined {
  if (pod === undefined || isPodKey(pod)) return undefined
  return refusal(field, `${quote(pod)}: expected 1 to 16 hexadecimal digits`)
}
