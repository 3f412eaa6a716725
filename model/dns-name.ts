/**
 * Grammar of names below clusterset.local (specification.md of KEP-1645). Pure.
 *
 *   1. clusterset.local                                                    apex
 *   2. dns-version.clusterset.local                                        version
 *   3. ns.clusterset.local                                                 nameServer (ours, for the NS record)
 *   4. svc.clusterset.local                                                services
 *   5. <namespace>.svc.clusterset.local                                    namespace
 *   6. <service>.<namespace>.svc.clusterset.local                          service
 *   7. _<protocol>.<service>.<namespace>.svc.clusterset.local              protocol
 *   8. <cluster>.<service>.<namespace>.svc.clusterset.local                cluster (reserved: never has data)
 *   9. _<port>._<protocol>.<service>.<namespace>.svc.clusterset.local      port
 *  10. <hostname>.<cluster>.<service>.<namespace>.svc.clusterset.local     endpoint
 *
 * Any other name below the zone is `unknown`; a name outside it is `notOurs`. Letter case never counts.
 */
import { isDnsLabel } from './ids.ts'
import type { SliceEndpoint } from './objects.ts'
import { CLUSTERSET_ZONE } from './spec-constants.ts'

/** A name in the zone, in lower case. `port` and `protocol` have no underscores. */
export type ZoneName =
  | { readonly kind: 'apex' | 'version' | 'nameServer' | 'services' | 'unknown' }
  | { readonly kind: 'namespace'; readonly namespace: string }
  | { readonly kind: 'service'; readonly namespace: string; readonly service: string }
  | { readonly kind: 'protocol'; readonly namespace: string; readonly service: string; readonly protocol: string }
  | { readonly kind: 'cluster'; readonly namespace: string; readonly service: string; readonly cluster: string }
  | {
      readonly kind: 'port'
      readonly namespace: string
      readonly service: string
      readonly protocol: string
      readonly port: string
    }
  | {
      readonly kind: 'endpoint'
      readonly namespace: string
      readonly service: string
      readonly cluster: string
      readonly hostname: string
    }

export type DnsName = ZoneName | { readonly kind: 'notOurs' } | { readonly kind: 'malformed'; readonly reason: string }

/** How long a resolver may keep an answer, in seconds. */
export const DNS_TTL_SECONDS = 5

/** RFC 1035 section 2.3.4, for the text form without the final dot. */
export const MAX_DNS_NAME_LENGTH = 253
const MAX_DNS_LABEL_LENGTH = 63

const NOT_OURS: DnsName = { kind: 'notOurs' }
const UNKNOWN: ZoneName = { kind: 'unknown' }
const ZONE_SUFFIX = `.${CLUSTERSET_ZONE}`
/** One byte that text cannot show (RFC 1035 section 5.1). It counts as one character of its label. */
const ESCAPED_BYTE = /\\\d{3}/g

/**
 * Parses a name with or without the final dot; bytes that are not plain text are written as `\ddd`. Every string has
 * one of the kinds above.
 */
export function parseDnsName(text: string): DnsName {
  const name = (text.endsWith('.') ? text.slice(0, -1) : text).toLowerCase()
  const reason = text === '.' ? undefined : whyMalformed(name)
  if (reason !== undefined) return { kind: 'malformed', reason }
  if (name === CLUSTERSET_ZONE) return { kind: 'apex' }
  if (!name.endsWith(ZONE_SUFFIX)) return NOT_OURS
  return zoneName(name.slice(0, -ZONE_SUFFIX.length).split('.').reverse())
}

function whyMalformed(name: string): string | undefined {
  const plain = name.includes('\\') ? name.replace(ESCAPED_BYTE, '?') : name
  if (plain.includes('\\')) return 'a backslash must be followed by three digits'
  if (plain.length > MAX_DNS_NAME_LENGTH) return `longer than ${MAX_DNS_NAME_LENGTH} characters`
  for (const label of plain.split('.')) {
    if (label.length === 0) return 'empty label'
    if (label.length > MAX_DNS_LABEL_LENGTH) return `label longer than ${MAX_DNS_LABEL_LENGTH} characters`
  }
  return undefined
}

/** Takes the labels before the zone, the one nearest to the zone first. */
function zoneName(labels: readonly string[]): ZoneName {
  const [top, namespace, service, fourth, fifth] = labels
  if (top !== 'svc') {
    if (labels.length > 1) return UNKNOWN
    return top === 'dns-version' ? { kind: 'version' } : top === 'ns' ? { kind: 'nameServer' } : UNKNOWN
  }
  if (namespace === undefined) return { kind: 'services' }
  if (service === undefined) return { kind: 'namespace', namespace }
  if (fourth === undefined) return { kind: 'service', namespace, service }
  if (labels.length > 5) return UNKNOWN
  if (fourth.startsWith('_')) {
    const protocol = fourth.slice(1)
    if (fifth === undefined) return { kind: 'protocol', namespace, service, protocol }
    return fifth.startsWith('_') ? { kind: 'port', namespace, service, protocol, port: fifth.slice(1) } : UNKNOWN
  }
  if (fifth === undefined) return { kind: 'cluster', namespace, service, cluster: fourth }
  return { kind: 'endpoint', namespace, service, cluster: fourth, hostname: fifth }
}

/** Formats a name that parseDnsName() has parsed, with the final dot. For `unknown` it returns the zone. */
export function formatZoneName(name: ZoneName): string {
  return [...ownLabels(name), CLUSTERSET_ZONE, ''].join('.')
}

function ownLabels(name: ZoneName): string[] {
  switch (name.kind) {
    case 'apex':
    case 'unknown':
      return []
    case 'version':
      return ['dns-version']
    case 'nameServer':
      return ['ns']
    case 'services':
      return ['svc']
    case 'namespace':
      return [name.namespace, 'svc']
    case 'service':
      return [name.service, name.namespace, 'svc']
    case 'protocol':
      return [`_${name.protocol}`, name.service, name.namespace, 'svc']
    case 'cluster':
      return [name.cluster, name.service, name.namespace, 'svc']
    case 'port':
      return [`_${name.port}`, `_${name.protocol}`, name.service, name.namespace, 'svc']
    case 'endpoint':
      return [name.hostname, name.cluster, name.service, name.namespace, 'svc']
  }
}

// Checks whether the names that DNS builds from several parts are short enough (RFC 1035 section 2.3.4, KEP-1645
// "DNS"). Pure.

/** The three dots between the variable labels of `<hostname>.<cluster>.<service>.<namespace>`, and `.svc.<zone>`. */
const FIXED_LENGTH = 3 + `.svc.${CLUSTERSET_ZONE}`.length

interface EndpointNameParts {
  readonly hostname: string
  readonly cluster: string
  readonly service: string
  readonly namespace: string
}

/**
 * Returns by how many characters `<hostname>.<cluster>.<service>.<namespace>.svc.clusterset.local` is too long; 0 if it
 * is not.
 */
export function excessNameLength({ hostname, cluster, service, namespace }: EndpointNameParts): number {
  const length = hostname.length + cluster.length + service.length + namespace.length + FIXED_LENGTH
  return Math.max(0, length - MAX_DNS_NAME_LENGTH)
}

// The DNS label of an endpoint inside a headless service (KEP-1645 specification.md). Pure.

/**
 * Returns the endpoint's own hostname if it is a DNS label, else its first address with '-' for '.' and ':'. The
 * address must be the one that its own cluster uses, so that the name is the same in all clusters. Undefined if there
 * is no address.
 */
export function endpointHostname(endpoint: Pick<SliceEndpoint, 'hostname' | 'addresses'>): string | undefined {
  const { hostname, addresses } = endpoint
  if (hostname !== undefined && isDnsLabel(hostname)) return hostname
  return addresses[0] === undefined ? undefined : dashedAddress(addresses[0])
}

/**
 * Returns the DNS label of one address of an imported endpoint: what its exporter published as hostname, else the
 * address with '-' for '.' and ':'.
 */
export function importedHostname({ hostname }: Pick<SliceEndpoint, 'hostname'>, address: string): string {
  const label = hostname?.toLowerCase()
  return label !== undefined && isDnsLabel(label) ? label : dashedAddress(address)
}

/** Writes `10.1.0.8` as `10-1-0-8`. A label neither begins nor ends with '-', so `fd00::` becomes `fd00--0`. */
export function dashedAddress(text: string): string {
  const dashed = text.toLowerCase().replaceAll(/[.:]/g, '-')
  return `${dashed.startsWith('-') ? '0' : ''}${dashed}${dashed.endsWith('-') ? '0' : ''}`
}
