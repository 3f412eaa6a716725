/**
 * Validates what a member wants to publish. Pure. An admitted record can be sent unchanged to every other member: a
 * refused one never reaches the kernel or the DNS of another cluster.
 */
import { KEY_FORMS, RECORD_FORMS, quote, textProblem } from '../../model/grammar/grammar.ts'
import { type EndpointBody, type MemberRecord, endpointName, guardedNamespace } from '../../model/model.ts'
import type { Prefix } from '../../model/addresses/addresses.ts'
import { admitSlice } from './admission-slice.ts'
import {
  type ClustersetRanges,
  type Refusal,
  checkForm,
  checkOuterAddress,
  checkText,
  first,
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
