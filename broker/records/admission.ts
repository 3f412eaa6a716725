/**
 * Validates what a member wants to publish. Pure. An admitted record can be sent unchanged to every other member: a
 * refused one never reaches the kernel or the DNS of another cluster.
 */
import {
  type Address,
  type AddressClass,
  type Prefix,
  classifyAddress,
  containsAddress,
  formatPrefix,
  parseAddress,
  parsePrefix,
} from '../../model/addresses/addresses.ts'
import {
  type FormOf,
  KEY_FORMS,
  MAX_SLICE_ADDRESSES,
  RECORD_FORMS,
  SLICE_ADDRESSES,
  addressIn,
  countProblem,
  formProblem,
  quote,
  sliceForm,
  textProblem,
} from '../../model/grammar/grammar.ts'
import {
  CLUSTERSET_IPV6_PREFIX,
  type EndpointBody,
  type EndpointSliceBody,
  LANE_ADDRESS_RANGE,
  type MemberRecord,
  type PublishedEndpoint,
  endpointName,
  excessNameLength,
  guardedNamespace,
} from '../../model/model.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'
import { RefusedError } from '../../protocol/protocol.ts'

export interface AdmissionContext {
  /** Cluster id of the certificate. */
  readonly cluster: string
  /** The pod CIDRs of the publisher, parsed. */
  readonly podCIDRs: readonly Prefix[]
  readonly allowedNamespaces: readonly string[]
  readonly ranges: ClustersetRanges
  /** The cluster that stated this WireGuard key first, if any. */
  readonly publicKeyOwner: (publicKey: string) => string | undefined
}

/** Undefined if the record may be stored. Otherwise the first problem. */
export function admitRecord(record: MemberRecord, context: AdmissionContext): Refusal | undefined {
  const { namespace, name, body } = record
  switch (body.kind) {
    case 'ServiceExport':
      return (
        admitNamespace(namespace, context.allowedNamespaces) ??
        checkText('name', textProblem(KEY_FORMS.ServiceExport.name, name)) ??
        checkForm(RECORD_FORMS.ServiceExport, body)
      )
    case 'EndpointSlice':
      return (
        admitNamespace(namespace, context.allowedNamespaces) ??
        checkText('name', textProblem(KEY_FORMS.EndpointSlice.name, name)) ??
        admitSlice(body, { ...context, namespace })
      )
    case 'Endpoint':
      return admitEndpoint(record, body, context)
    default:
      // The type excludes this case, but a record from the network may have any kind.
      return refusal(
        'kind',
        `${quote(String((body as { kind?: unknown }).kind))}: only the broker writes this kind`,
        'ForeignClaim',
      )
  }
}

/** Exports from a guarded namespace would give its names to other clusters. */
export function admitNamespace(namespace: string, allowed: readonly string[]): Refusal | undefined {
  const bad = checkText('namespace', textProblem(KEY_FORMS.ServiceExport.namespace, namespace))
  if (bad !== undefined) return bad
  const guard = guardedNamespace(namespace)
  if (guard === undefined || allowed.includes(namespace)) return undefined
  return refusal(
    'namespace',
    `${quote(namespace)} ${guard}: export from another one, or start the broker with --allow-namespace ${namespace}`,
    'NamespaceNotAllowed',
  )
}

function admitEndpoint(record: MemberRecord, body: EndpointBody, context: AdmissionContext): Refusal | undefined {
  const { spec } = body
  const wanted = endpointName(spec.cluster, spec.node, spec.lane)
  return first(
    () => checkText('namespace', textProblem(KEY_FORMS.Endpoint.namespace, record.namespace)),
    () =>
      spec.cluster === context.cluster
        ? undefined
        : refusal(
            'spec.cluster',
            `${quote(spec.cluster)}: expected ${quote(context.cluster)}, the cluster of the certificate`,
            'ForeignClaim',
          ),
    () => checkForm(RECORD_FORMS.Endpoint, body),
    () => (record.name === wanted ? undefined : refusal('name', `${quote(record.name)}: expected ${quote(wanted)}`)),
    () => admitPublicKey('spec.publicKey', spec.publicKey, context),
    () => admitNextKey(spec, context),
    ...spec.candidates.map(
      ({ address }, i) =>
        () =>
          checkOuterAddress(`spec.candidates[${i}].address`, address, context.ranges),
    ),
  )
}

/** An announced key belongs to its owner from then on, like a key in use. */
function admitNextKey(
  { publicKey, nextPublicKey }: EndpointBody['spec'],
  context: AdmissionContext,
): Refusal | undefined {
  if (nextPublicKey === undefined) return undefined
  if (nextPublicKey === publicKey) {
    return refusal('spec.nextPublicKey', `${quote(nextPublicKey)} is spec.publicKey: expected another key`)
  }
  return admitPublicKey('spec.nextPublicKey', nextPublicKey, context)
}

function admitPublicKey(field: string, key: string, context: AdmissionContext): Refusal | undefined {
  const owner = context.publicKeyOwner(key)
  if (owner === undefined || owner === context.cluster) return undefined
  return refusal(
    field,
    `${quote(key)} is a key of cluster ${quote(owner)}, which stated it first: expected a key of its own for each gateway`,
    'PublicKeyTaken',
  )
}

// EndpointSlices: other clusters send packets to their addresses and put them into DNS answers.

interface SliceContext {
  readonly cluster: string
  readonly namespace: string
  readonly podCIDRs: readonly Prefix[]
}

function admitSlice(body: EndpointSliceBody, context: SliceContext): Refusal | undefined {
  const malformed = checkSize(body) ?? checkForm(sliceForm(body), body, '', SLICE_ADDRESSES)
  if (malformed !== undefined) return malformed
  for (const [i, endpoint] of body.endpoints.entries()) {
    const refused = admitEndpointOfSlice(`endpoints[${i}]`, endpoint, body, context)
    if (refused !== undefined) return refused
  }
  return undefined
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

function admitEndpointOfSlice(
  field: string,
  endpoint: PublishedEndpoint,
  body: EndpointSliceBody,
  context: SliceContext,
): Refusal | undefined {
  for (const [i, text] of endpoint.addresses.entries()) {
    const refused = admitAddress(`${field}.addresses[${i}]`, text, body, context.podCIDRs)
    if (refused !== undefined) return refused
  }
  return admitHostname(`${field}.hostname`, endpoint.hostname, body, context)
}

function admitAddress(
  field: string,
  text: string,
  body: EndpointSliceBody,
  podCIDRs: readonly Prefix[],
): Refusal | undefined {
  const address = addressIn(text, body.addressType)
  if (address === undefined) {
    const form = sliceForm(body).fields.endpoints.item.fields.addresses.item
    return checkText(field, textProblem(form, text))
  }
  const unusable = describeUnusable(address)
  if (unusable === undefined && podCIDRs.some((prefix) => containsAddress(prefix, address))) return undefined
  const own = podCIDRs.map(formatPrefix).join(', ')
  const problem =
    unusable === undefined
      ? `outside the cluster's pod CIDRs: expected one inside ${own}`
      : `${unusable}: expected one inside the cluster's pod CIDRs ${own}`
  return refusal(field, `${quote(text)} is ${problem}`, 'AddressOutsidePods')
}

/** A hostname becomes part of a DNS name of its own, which must not be too long. */
function admitHostname(
  field: string,
  hostname: string | undefined,
  body: EndpointSliceBody,
  context: SliceContext,
): Refusal | undefined {
  if (hostname === undefined || hostname === '') return undefined
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

// Single checks, also of what a cluster states about itself. Each returns undefined, or a refusal in one sentence.

export interface Refusal {
  readonly field: string
  readonly reason: RefusalReason
  /** Continues after the field: `"x": expected …`. */
  readonly message: string
  /** There is no room for the new version of the record. The previous version is still stored. */
  readonly kept?: true
}

export function refusal(field: string, message: string, reason: RefusalReason = 'InvalidValue'): Refusal {
  return { field, reason, message }
}

/** The first refusal. Later checks do not run, so they may rely on the earlier ones. */
export function first(...checks: readonly (() => Refusal | undefined)[]): Refusal | undefined {
  for (const check of checks) {
    const refused = check()
    if (refused !== undefined) return refused
  }
  return undefined
}

/** Checks the form of a value, whose field is `path`, except values of the forms in `apart`. */
export function checkForm<T>(form: FormOf<T>, value: T, path = '', apart?: ReadonlySet<unknown>): Refusal | undefined {
  const wrong = formProblem(form, value, apart)
  return wrong && refusal(`${path}${wrong.field}`, wrong.problem)
}

export function checkText(field: string, problem: string | undefined): Refusal | undefined {
  return problem === undefined ? undefined : refusal(field, problem)
}

export function checkCount(field: string, count: number, least: number, most: number): Refusal | undefined {
  return checkText(field, countProblem(count, { least, most }))
}

const CLASS_WORDS: Record<Exclude<AddressClass, 'usable'>, string> = {
  unspecified: 'an unspecified',
  loopback: 'a loopback',
  linkLocal: 'a link-local',
  multicast: 'a multicast',
  broadcast: 'the broadcast',
}

/** Undefined if the address can be used between clusters. */
export function describeUnusable(address: Address): string | undefined {
  const is = classifyAddress(address)
  return is === 'usable' ? undefined : `${CLASS_WORDS[is]} address`
}

/** Ranges from which the broker allocates. */
export interface ClustersetRanges {
  readonly globalRange: string
  readonly clustersetIpRange: string
}

/** Ranges that no cluster may use as its own, with their purpose. */
export function reservedRanges(ranges: ClustersetRanges): readonly (readonly [range: string, what: string])[] {
  return [
    [ranges.globalRange, "the clusterset's global range"],
    [ranges.clustersetIpRange, 'the clusterset IP range'],
    [CLUSTERSET_IPV6_PREFIX, 'the range of IPv6 clusterset IPs'],
    [LANE_ADDRESS_RANGE, 'the addresses of lane devices'],
  ]
}

/** Checks an address outside the tunnels: an address inside them would route a gateway's own packets back to itself. */
export function checkOuterAddress(field: string, text: string, ranges: ClustersetRanges): Refusal | undefined {
  const address = parseOrUndefined(text)
  if (address === undefined) return refusal(field, `${quote(text)}: expected an IPv4 or IPv6 address`)
  const inside = reservedRanges(ranges).find(([range]) => containsAddress(parsePrefix(range), address))
  const unusable = inside === undefined ? describeUnusable(address) : `inside ${inside[0]} (${inside[1]})`
  return unusable === undefined
    ? undefined
    : refusal(field, `${quote(text)} is ${unusable}: expected one that other clusters can reach`, 'AddressNotReachable')
}

export function parseOrUndefined(text: string): Address | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}

// Refusals about a member as errors.

/** The refusal of facts that a cluster states about itself. */
export function refusedFacts({ reason, field, message }: Refusal): RefusedError {
  return new RefusedError(reason, field, `${field}: ${message}`)
}

/** The refusal of a certificate that a cluster shows, or of its membership. */
export function denied(reason: RefusalReason, message: string): RefusedError {
  return new RefusedError(reason, 'certificate', message)
}
