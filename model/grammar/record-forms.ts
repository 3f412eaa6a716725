/**
 * The form of each record that members publish or the broker writes. The decoder takes the limits from here, and the
 * broker's admission and each importer check all of it, besides what only they know: facts, ranges, owners. The form of a
 * MemberStatus is statusProblem(). Pure.
 */
import {
  CANDIDATE_KINDS,
  FAMILY_NAMES,
  type FamilyName,
  IMPORT_TYPES,
  MAX_ADDRESSED_LANE,
  MAX_AFFINITY_SECONDS,
  MAX_ANNOTATION_BYTES,
  MAX_CANDIDATES,
  MAX_CAPABILITIES,
  MAX_CAPABILITY_LENGTH,
  MAX_CIDRS,
  MAX_CLUSTER_LABELS,
  MAX_CLUSTER_INDEX,
  MAX_CLUSTER_PROPERTIES,
  MAX_CLUSTER_SELECTORS,
  MAX_ENDPOINT_ADDRESSES,
  MAX_LABEL,
  MAX_NAME,
  MAX_PAIRS,
  MAX_POLICY_ENTRIES,
  MAX_POLICY_NAMESPACES,
  MAX_PORT,
  MAX_PROPERTY_VALUE,
  MAX_SELECTOR_ENTRIES,
  MAX_SERVICE_PORTS,
  MAX_SLICE_ENDPOINTS,
  PROTOCOLS,
  SESSION_AFFINITIES,
  TRAFFIC_POLICIES,
  addressIn,
  isAddress,
  isDnsLabel,
  isDnsSubdomain,
  isLabelValue,
  isObjectName,
  isPublicKey,
  isQualifiedName,
  parsePrefix,
} from '../values/values.ts'
import {
  type ClusterBody,
  type ClusterSelector,
  type ClusterSetIpBody,
  type EndpointBody,
  type EndpointCandidate,
  type EndpointPort,
  type EndpointSliceBody,
  type EndpointSpec,
  type ImportPort,
  type LabelSelector,
  MAX_ZONE_HINTS,
  type NamespaceChoice,
  type OfferRule,
  type PropertySelector,
  type PublishedEndpoint,
  type RecordKind,
  type ServiceExportBody,
} from '../model.ts'
import { MAX_OFFERED_IDS, MAX_OFFER_RULES, offerProblem } from '../access/access.ts'
import { isPodKey } from '../services/services.ts'
import {
  type FormProblem,
  type GroupForm,
  type TextForm,
  group,
  list,
  number,
  optional,
  pairs,
  quote,
  text,
  word,
  wrongWord,
} from './forms.ts'

// Texts.

function labelProblem(value: string): string | undefined {
  if (isDnsLabel(value)) return undefined
  if (value.length > MAX_LABEL) return `${quote(value)} has ${value.length} characters: expected at most ${MAX_LABEL}`
  return `${quote(value)}: expected an RFC 1123 label: 1 to 63 of a-z, 0-9 and -`
}

function expecting(expected: string, test: (value: string) => boolean): TextForm['problem'] {
  return (value) => (test(value) ? undefined : `${quote(value)}: expected ${expected}`)
}

function unlessEmpty(problem: TextForm['problem']): TextForm['problem'] {
  return (value) => (value === '' ? undefined : problem(value))
}

/** Text of `least` to `most` characters, none of them a control character. */
export function plainProblem(value: string, least: number, most: number): string | undefined {
  if (value.length < least || value.length > most) return `has ${value.length} characters: expected ${least} to ${most}`
  return /[\u0000-\u001f\u007f]/.test(value) ? `${quote(value)}: expected no control characters` : undefined
}

/** Clusters, namespaces and Services: an RFC 1123 label. */
const label = text(MAX_NAME, labelProblem, 1)
/** The Kubernetes API allows '' for a port or host without a name. */
const labelOrNothing = text(MAX_NAME, unlessEmpty(labelProblem))
/** Objects whose name the API server checks as an RFC 1123 subdomain, without the limit of 63 for each part. */
const objectName = text(MAX_NAME, expecting('an RFC 1123 subdomain of at most 253 characters', isObjectName), 1)
/** Ours: the API allows 317 characters, but earlier releases read only 253 in these fields. */
const qualifiedName = text(MAX_NAME, expecting('a Kubernetes qualified name such as example.org/name', isQualifiedName))
const labelValue = text(MAX_LABEL, expecting('a Kubernetes label value', isLabelValue))
/** apimachinery IsQualifiedName: a prefix of 253 characters, a slash, and a name of 63. */
const labelKey = text(317, expecting('a Kubernetes label key', isQualifiedName), 1)
/** Zones are values of a Node's label. */
const zone = text(
  MAX_NAME,
  expecting('a Kubernetes label value that is not empty', (value) => value !== '' && isLabelValue(value)),
)

// Addresses.

/** Ours: the most characters of an address or CIDR on the wire. The longest text of an IPv6 prefix has 49. */
export const MAX_ADDRESS_TEXT = 64

const address = text(MAX_ADDRESS_TEXT, expecting('an IPv4 or IPv6 address', isAddress), 1)

function addressOf(family: FamilyName): TextForm {
  return text(
    MAX_ADDRESS_TEXT,
    expecting(`an ${family} address`, (value) => addressIn(value, family) !== undefined),
  )
}

const cidr = text(MAX_ADDRESS_TEXT, (value) => {
  try {
    parsePrefix(value, '')
    return undefined
  } catch (error) {
    return (error as Error).message.trimStart()
  }
})
const cidrs = list(cidr, 0, MAX_CIDRS)

const ZERO_KEY = `${'A'.repeat(43)}=`

const publicKey = text(44, (value) => {
  if (!isPublicKey(value)) return `${quote(value)}: expected 32 bytes in base64`
  return value === ZERO_KEY ? 'is all zeros: expected a Curve25519 public key' : undefined
})

// Numbers, words and lists.

const port = number(1, MAX_PORT)
const transport = word(...PROTOCOLS)
const family = word(...FAMILY_NAMES)
const flag = { t: 'flag' } as const
const some = { mostRead: MAX_PAIRS, key: labelKey, mostTogether: MAX_ANNOTATION_BYTES }

const labels = pairs({ ...some, most: MAX_PAIRS, value: labelValue })
const annotations = pairs({ ...some, most: MAX_PAIRS, value: text(MAX_ANNOTATION_BYTES, () => undefined) })
/** The limit of the CRD, without which no API server would take the Cluster. */
const clusterLabels = pairs({ ...some, most: MAX_CLUSTER_LABELS, value: labelValue })

// Records.

const exportPort = group<ImportPort>({
  port,
  protocol: transport,
  name: optional(labelOrNothing),
  appProtocol: optional(qualifiedName),
})

/** A Service cannot have these twice either, and the merge relies on that. */
function distinctPorts(ports: readonly ImportPort[]): FormProblem | undefined {
  const names = new Map<string, number>()
  const numbers = new Map<string, number>()
  for (const [i, one] of ports.entries()) {
    const name = one.name ?? ''
    const sameName = names.get(name)
    if (sameName !== undefined)
      return { field: `[${i}].name`, problem: `${quote(name)} is the name of ports[${sameName}] as well` }
    names.set(name, i)
    const both = `${one.protocol} ${one.port}`
    const sameNumber = numbers.get(both)
    if (sameNumber !== undefined)
      return { field: `[${i}].port`, problem: `${both} is the port of ports[${sameNumber}] as well` }
    numbers.set(both, i)
  }
  return undefined
}

// A value that no label can have is of no harm: it matches nothing.
const selectorValue = text(MAX_LABEL, () => undefined)

const labelSelector = group<LabelSelector>({
  matchLabels: optional(
    pairs({
      ...{ most: MAX_POLICY_ENTRIES, mostRead: MAX_POLICY_ENTRIES, key: labelKey, value: selectorValue },
      mostTogether: MAX_ANNOTATION_BYTES,
    }),
  ),
  matchExpressions: optional(
    list(
      group<NonNullable<LabelSelector['matchExpressions']>[number]>({
        key: labelKey,
        operator: word('In', 'NotIn', 'Exists', 'DoesNotExist'),
        values: optional(list(selectorValue, 0, MAX_POLICY_ENTRIES)),
      }),
      0,
      MAX_POLICY_ENTRIES,
    ),
  ),
})

const offeredIds = list(label, 0, MAX_OFFERED_IDS)

const offer = list(
  group<OfferRule>({
    clusters: offeredIds,
    namespaces: optional(
      group<NamespaceChoice>({
        names: list(label, 0, MAX_POLICY_NAMESPACES),
        selectors: list(labelSelector, 0, MAX_POLICY_NAMESPACES),
      }),
    ),
  }),
  0,
  MAX_OFFER_RULES,
  (rules) => {
    const wrong = offerProblem(rules)
    return wrong === undefined ? undefined : { field: '', problem: wrong }
  },
)

// Values are held to no syntax (KEP-5939), but to a length.
const propertyValue = text(MAX_PROPERTY_VALUE, () => undefined)
const propertyName = text(MAX_NAME, expecting('the name of a ClusterProperty', isObjectName), 1)

/** What a selector means, and whether it means anything, is decided by the importer: a later release may say more. */
const clusterSelector = group<ClusterSelector>({
  propertySelector: optional(
    group<PropertySelector>({
      matchProperties: optional(
        pairs({
          ...{ most: MAX_SELECTOR_ENTRIES, mostRead: MAX_SELECTOR_ENTRIES, key: propertyName, value: propertyValue },
          mostTogether: MAX_ANNOTATION_BYTES,
        }),
      ),
      matchExpressions: optional(
        list(
          group<NonNullable<PropertySelector['matchExpressions']>[number]>({
            key: propertyName,
            operator: word('In', 'NotIn', 'Exists', 'DoesNotExist'),
            values: optional(list(propertyValue, 0, MAX_SELECTOR_ENTRIES)),
          }),
          0,
          MAX_SELECTOR_ENTRIES,
        ),
      ),
    }),
  ),
})

const serviceExport = group<ServiceExportBody>({
  uid: text(MAX_NAME, (value) => plainProblem(value, 1, 128)),
  type: word(...IMPORT_TYPES),
  ports: list(exportPort, 0, MAX_SERVICE_PORTS, distinctPorts),
  sessionAffinity: word(...SESSION_AFFINITIES),
  sessionAffinityTimeoutSeconds: optional(number(1, MAX_AFFINITY_SECONDS)),
  internalTrafficPolicy: optional(
    text(MAX_NAME, (value) => (TRAFFIC_POLICIES.includes(value) ? undefined : wrongWord(value, TRAFFIC_POLICIES))),
  ),
  trafficDistribution: optional(qualifiedName),
  ipFamilies: list(family, 0, 2),
  exportedLabels: labels,
  exportedAnnotations: annotations,
  offeredTo: optional(offer),
  clusterSelectors: optional(list(clusterSelector, 0, MAX_CLUSTER_SELECTORS)),
  drained: optional(flag),
  drainedNow: optional(flag),
  keepsOpen: optional(flag),
  endsOpen: optional(flag),
})

const slicePort = group<EndpointPort>({
  port: optional(port),
  protocol: optional(transport),
  name: optional(labelOrNothing),
  appProtocol: optional(qualifiedName),
})

/** An endpoint of a slice. The limits are those of discovery.k8s.io/v1. */
function sliceEndpoint(addressType: FamilyName): GroupForm<PublishedEndpoint> {
  return group<PublishedEndpoint>({
    addresses: list(addressOf(addressType), 1, MAX_ENDPOINT_ADDRESSES),
    hostname: optional(labelOrNothing),
    nodeName: optional(text(MAX_NAME, expecting('an RFC 1123 subdomain', isObjectName))),
    zone: optional(zone),
    pod: optional(text(16, expecting('1 to 16 hexadecimal digits', isPodKey))),
    hints: optional(
      group<NonNullable<PublishedEndpoint['hints']>>({
        forZones: optional(list(group<{ readonly name: string }>({ name: zone }, true), 0, MAX_ZONE_HINTS)),
      }),
    ),
    conditions: optional(
      group<NonNullable<PublishedEndpoint['conditions']>>({
        ready: optional(flag),
        serving: optional(flag),
        terminating: optional(flag),
      }),
    ),
  })
}

function endpointSlice(addressType: FamilyName): GroupForm<EndpointSliceBody> {
  return group<EndpointSliceBody>({
    service: label,
    addressType: family,
    ports: list(slicePort, 0, MAX_SERVICE_PORTS),
    endpoints: list(sliceEndpoint(addressType), 0, MAX_SLICE_ENDPOINTS),
    offeredTo: optional(offeredIds),
  })
}

const candidate = group<EndpointCandidate>({
  kind: word(...CANDIDATE_KINDS),
  address,
  port,
})

const endpointSpec = group<EndpointSpec>({
  cluster: label,
  node: text(MAX_NAME, expecting('an RFC 1123 subdomain', isDnsSubdomain), 1),
  lane: number(0, MAX_ADDRESSED_LANE),
  publicKey,
  nextPublicKey: optional(publicKey),
  candidates: list(candidate, 0, MAX_CANDIDATES),
  capabilities: list(
    text(MAX_CAPABILITY_LENGTH, (value) => plainProblem(value, 1, MAX_CAPABILITY_LENGTH)),
    0,
    MAX_CAPABILITIES,
  ),
})

const clusterSpec = group<ClusterBody['spec']>({
  id: label,
  index: number(0, MAX_CLUSTER_INDEX),
  podCIDRs: cidrs,
  serviceCIDRs: cidrs,
  globalCIDRs: cidrs,
  labels: clusterLabels,
  drained: optional(flag),
  drainedNow: optional(flag),
  properties: optional(
    pairs({
      ...{ most: MAX_CLUSTER_PROPERTIES, mostRead: MAX_CLUSTER_PROPERTIES, key: propertyName, value: propertyValue },
      mostTogether: MAX_ANNOTATION_BYTES,
    }),
  ),
})

/** The forms of record bodies. For an EndpointSlice, sliceForm() gives the one of its family. */
export const RECORD_FORMS = {
  ServiceExport: serviceExport,
  EndpointSlice: endpointSlice('IPv4'),
  Endpoint: group<EndpointBody>({ spec: endpointSpec }),
  Cluster: group<ClusterBody>({ spec: clusterSpec }),
  ClusterSetIP: group<ClusterSetIpBody>({ ips: list(addressOf('IPv4'), 0, 2) }),
} as const

const IPV6_SLICE = endpointSlice('IPv6')

/** The form of a slice, whose addresses are of its own type. */
export function sliceForm({ addressType }: Pick<EndpointSliceBody, 'addressType'>): GroupForm<EndpointSliceBody> {
  return addressType === 'IPv6' ? IPV6_SLICE : RECORD_FORMS.EndpointSlice
}

const endpointForms = [RECORD_FORMS.EndpointSlice, IPV6_SLICE].map(({ fields }) => fields.endpoints.item)

/** The forms of parts that an importer leaves out alone, so that the rest of the record stays usable. */
export const PARTS: ReadonlySet<unknown> = new Set([candidate, ...endpointForms])

/** The forms of the addresses in slices, for callers that need what addressIn() gives. */
export const SLICE_ADDRESSES: ReadonlySet<unknown> = new Set(endpointForms.map(({ fields }) => fields.addresses.item))

const noNamespace = (kind: string): TextForm =>
  text(
    MAX_NAME,
    expecting(`none, ${kind} has no namespace`, (value) => value === ''),
  )

/** The forms of namespace and name of the records of a kind. */
export const KEY_FORMS: Readonly<Record<RecordKind, { readonly namespace: TextForm; readonly name: TextForm }>> = {
  ServiceExport: { namespace: label, name: label },
  ClusterSetIP: { namespace: label, name: label },
  EndpointSlice: { namespace: label, name: objectName },
  Endpoint: { namespace: noNamespace('an Endpoint'), name: objectName },
  Cluster: { namespace: noNamespace('a Cluster'), name: label },
  MemberStatus: { namespace: noNamespace('a MemberStatus'), name: label },
  Topology: { namespace: noNamespace('a Topology'), name: label },
}

/**
 * Ours: the most addresses of a slice. Kubernetes allows 100,000 (1,000 endpoints of 100 addresses), but its controllers
 * give each endpoint one, and all members process each.
 */
export const MAX_SLICE_ADDRESSES = 2000
