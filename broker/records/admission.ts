/**
 * Validates what a member wants to publish. Pure. An admitted record can be sent unchanged to every other member: a
 * refused one never reaches the kernel or the DNS of another cluster.
 */
import {
  type EndpointBody,
  type MemberRecord,
  type ServiceExportBody,
  endpointName,
  guardedNamespace,
  isDnsSubdomain,
  isLabelValue,
  isQualifiedName,
} from '../../model/model.ts'
import { MAX_ADDRESSED_LANE, type Prefix } from '../../model/addresses/addresses.ts'
import { admitSlice } from './admission-slice.ts'
import {
  type ClustersetRanges,
  type Refusal,
  checkCount,
  checkLabel,
  checkOneOf,
  checkOuterAddress,
  checkPort,
  checkQualifiedName,
  checkText,
  first,
  quote,
  refusal,
} from './admission-checks.ts'

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
  switch (record.body.kind) {
    case 'ServiceExport':
      return first(
        () => admitNamespace(record.namespace, context.allowedNamespaces),
        () => checkLabel('name', record.name),
        () => admitExport(record.body as ServiceExportBody),
      )
    case 'EndpointSlice': {
      const body = record.body
      return first(
        () => admitNamespace(record.namespace, context.allowedNamespaces),
        () => admitName(record.name),
        () => admitSlice(body, { ...context, namespace: record.namespace }),
      )
    }
    case 'Endpoint':
      return admitEndpoint(record, record.body, context)
    default:
      // The type excludes this case, but a record from the network may have any kind.
      return refusal(
        'kind',
        `${quote(String((record.body as { kind?: unknown }).kind))}: only the broker writes this kind`,
        'ForeignClaim',
      )
  }
}

/** Exports from a guarded namespace would give its names to other clusters. */
export function admitNamespace(namespace: string, allowed: readonly string[]): Refusal | undefined {
  const bad = checkLabel('namespace', namespace)
  if (bad !== undefined) return bad
  const guard = guardedNamespace(namespace)
  if (guard === undefined || allowed.includes(namespace)) return undefined
  return refusal(
    'namespace',
    `${quote(namespace)} ${guard}: export from another one, or start the broker with --allow-namespace ${namespace}`,
    'NamespaceNotAllowed',
  )
}

function admitName(name: string): Refusal | undefined {
  if (isDnsSubdomain(name)) return undefined
  return refusal('name', `${quote(name)}: expected an RFC 1123 subdomain of at most 253 characters`)
}

const MAX_LABELS = 64
const MAX_ANNOTATIONS = 64
const MAX_METADATA_CHARACTERS = 65_536
/** KEP-1645, sessionAffinityConfig: a day. */
const MAX_AFFINITY_SECONDS = 86_400

function admitExport(body: ServiceExportBody): Refusal | undefined {
  return first(
    () => checkText('uid', body.uid, 1, 128),
    () => checkOneOf('type', body.type, ['ClusterSetIP', 'Headless']),
    () => checkCount('ports', body.ports.length, 0, 100),
    ...body.ports.map((port, i) => () => admitPort(`ports[${i}]`, port)),
    () => admitUniquePorts(body.ports),
    () => checkOneOf('sessionAffinity', body.sessionAffinity, ['ClientIP', 'None']),
    () => admitAffinitySeconds(body.sessionAffinityTimeoutSeconds),
    () => checkOneOf('internalTrafficPolicy', body.internalTrafficPolicy ?? 'Cluster', ['Cluster', 'Local']),
    () => checkQualifiedName('trafficDistribution', body.trafficDistribution),
    () => checkCount('ipFamilies', body.ipFamilies.length, 0, 2),
    ...body.ipFamilies.map((family, i) => () => checkOneOf(`ipFamilies[${i}]`, family, ['IPv4', 'IPv6'])),
    () => admitMetadata('exportedLabels', body.exportedLabels, MAX_LABELS),
    ...Object.entries(body.exportedLabels).map(
      ([key, value]) =>
        () =>
          isLabelValue(value)
            ? undefined
            : refusal(`exportedLabels[${key}]`, `${quote(value)}: expected a Kubernetes label value`),
    ),
    () => admitMetadata('exportedAnnotations', body.exportedAnnotations, MAX_ANNOTATIONS),
  )
}

function admitPort(field: string, port: ServiceExportBody['ports'][number]): Refusal | undefined {
  return first(
    () => checkPort(`${field}.port`, port.port),
    () => checkOneOf(`${field}.protocol`, port.protocol, ['TCP', 'UDP', 'SCTP']),
    () => (port.name === undefined ? undefined : checkLabel(`${field}.name`, port.name)),
    () => checkQualifiedName(`${field}.appProtocol`, port.appProtocol),
  )
}

/** A Service cannot have these twice either, and the merge relies on that. */
function admitUniquePorts(ports: ServiceExportBody['ports']): Refusal | undefined {
  const names = new Map<string, number>()
  const numbers = new Map<string, number>()
  for (const [i, port] of ports.entries()) {
    const name = port.name ?? ''
    const sameName = names.get(name)
    if (sameName !== undefined)
      return refusal(`ports[${i}].name`, `${quote(name)} is the name of ports[${sameName}] as well`)
    names.set(name, i)
    const number = `${port.protocol} ${port.port}`
    const sameNumber = numbers.get(number)
    if (sameNumber !== undefined)
      return refusal(`ports[${i}].port`, `${number} is the port of ports[${sameNumber}] as well`)
    numbers.set(number, i)
  }
  return undefined
}

function admitAffinitySeconds(seconds: number | undefined): Refusal | undefined {
  if (seconds === undefined) return undefined
  if (Number.isInteger(seconds) && seconds >= 1 && seconds <= MAX_AFFINITY_SECONDS) return undefined
  return refusal('sessionAffinityTimeoutSeconds', `${seconds}: expected 1 to ${MAX_AFFINITY_SECONDS}`)
}

function admitMetadata(field: string, entries: Readonly<Record<string, string>>, max: number): Refusal | undefined {
  const list = Object.entries(entries)
  const characters = list.reduce((sum, [key, value]) => sum + key.length + value.length, 0)
  return first(
    () => checkCount(field, list.length, 0, max),
    () =>
      characters > MAX_METADATA_CHARACTERS
        ? refusal(field, `has ${characters} characters: expected at most ${MAX_METADATA_CHARACTERS}`)
        : undefined,
    ...list.map(
      ([key]) =>
        () =>
          isQualifiedName(key) ? undefined : refusal(field, `key ${quote(key)}: expected a Kubernetes label key`),
    ),
  )
}

export const MAX_CANDIDATES = 16
const MAX_CAPABILITIES = 32

function admitEndpoint(record: MemberRecord, body: EndpointBody, context: AdmissionContext): Refusal | undefined {
  const { spec } = body
  const wanted = endpointName(spec.cluster, spec.node, spec.lane)
  return first(
    () =>
      record.namespace === ''
        ? undefined
        : refusal('namespace', `${quote(record.namespace)}: expected none, an Endpoint has no namespace`),
    () =>
      spec.cluster === context.cluster
        ? undefined
        : refusal(
            'spec.cluster',
            `${quote(spec.cluster)}: expected ${quote(context.cluster)}, the cluster of the certificate`,
            'ForeignClaim',
          ),
    () =>
      isDnsSubdomain(spec.node)
        ? undefined
        : refusal('spec.node', `${quote(spec.node)}: expected an RFC 1123 subdomain`),
    () =>
      Number.isInteger(spec.lane) && spec.lane >= 0 && spec.lane <= MAX_ADDRESSED_LANE
        ? undefined
        : refusal('spec.lane', `${spec.lane}: expected 0 to ${MAX_ADDRESSED_LANE}`),
    () => (record.name === wanted ? undefined : refusal('name', `${quote(record.name)}: expected ${quote(wanted)}`)),
    () => admitPublicKey('spec.publicKey', spec.publicKey, context),
    () => admitNextKey(spec, context),
    () => checkCount('spec.candidates', spec.candidates.length, 0, MAX_CANDIDATES),
    ...spec.candidates.map((candidate, i) => () => admitCandidate(`spec.candidates[${i}]`, candidate, context)),
    () => checkCount('spec.capabilities', spec.capabilities.length, 0, MAX_CAPABILITIES),
    ...spec.capabilities.map((one, i) => () => checkText(`spec.capabilities[${i}]`, one, 1, 64)),
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

/** WireGuard whitepaper section 5: Curve25519, 32 bytes. */
function admitPublicKey(field: string, key: string, context: AdmissionContext): Refusal | undefined {
  const bytes = Buffer.from(key, 'base64')
  if (bytes.length !== 32 || bytes.toString('base64') !== key) {
    return refusal(field, `${quote(key)}: expected 32 bytes in base64`)
  }
  if (bytes.every((byte) => byte === 0)) return refusal(field, 'is all zeros: expected a Curve25519 public key')
  const owner = context.publicKeyOwner(key)
  if (owner === undefined || owner === context.cluster) return undefined
  return refusal(
    field,
    `${quote(key)} is a key of cluster ${quote(owner)}, which stated it first: expected a key of its own for each gateway`,
    'PublicKeyTaken',
  )
}

function admitCandidate(
  field: string,
  candidate: EndpointBody['spec']['candidates'][number],
  { ranges }: AdmissionContext,
): Refusal | undefined {
  return first(
    () => checkOneOf(`${field}.kind`, candidate.kind, ['private', 'public', 'observed', 'loadBalancer']),
    () => checkOuterAddress(`${field}.address`, candidate.address, ranges),
    () => checkPort(`${field}.port`, candidate.port),
  )
}
