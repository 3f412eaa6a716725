/**
 * Validates what other members state before it becomes an object here. The broker validates it first, but one
 * compromised broker must not be enough to affect this cluster. Pure. Every function gives the problem, or undefined.
 */
import {
  InvalidAddressError,
  type NeededRange,
  type Prefix,
  familyNumber,
  formatPrefix,
  neededIn,
  neededText,
  overlaps,
  parsePrefix,
  podFamilies,
  prefixPairs,
  routedPrefixes,
  specialPart,
} from '../../model/addresses/addresses.ts'
import { isOfferedTo } from '../../model/access/access.ts'
import {
  type FormProblem,
  KEY_FORMS,
  PARTS,
  RECORD_FORMS,
  formProblem,
  sliceForm,
  textProblem,
} from '../../model/grammar/grammar.ts'
import {
  type ClusterSpec,
  type EndpointSliceBody,
  type EndpointSpec,
  type MemberStatus,
  type NamespaceLists,
  type RecordKey,
  type ServiceExportBody,
  type StoredRecord,
  endpointName,
  excludedNamespace,
  isDnsLabel,
  isReservedId,
  statusProblem,
} from '../../model/model.ts'
import { type Problem, problem } from '../../model/reasons/reasons.ts'

/**
 * Limits the object name, which becomes a file name on a site. A file name has at most 255 octets, with the extension.
 */
const MAX_ENDPOINT_NAME = 240

/**
 * Takes a record as received. `lists` are those of this cluster about namespaces. `isKnown` tells whether a cluster is
 * already in the local API: a cluster keeps an id that was reserved later. `own` is the id of this cluster; if it is
 * absent, it is not checked to whom the record is offered.
 */
export function recordProblem(
  record: StoredRecord,
  lists: NamespaceLists,
  isKnown: (cluster: string) => boolean = () => false,
  own?: string,
): Problem | undefined {
  const { key, body } = record
  if (body.kind === 'ClusterSetIP' || body.kind === 'Topology') {
    if (key.cluster !== '') {
      const what = body.kind === 'Topology' ? 'states the topology' : 'assigns clusterset IPs'
      return problem('ForeignClaim', `a ${body.kind} record of cluster ${quote(key.cluster)}: only the broker ${what}`)
    }
  } else if (!isDnsLabel(key.cluster))
    return problem('InvalidValue', `cluster id ${quote(key.cluster)} is not a DNS label`)
  else if (isReservedId(key.cluster) && !isKnown(key.cluster))
    return problem('ClusterIdReserved', `cluster id ${quote(key.cluster)} is reserved`)
  switch (body.kind) {
    case 'ServiceExport':
      return (
        namespaceProblem(key.namespace, lists) ??
        serviceProblem(key.name) ??
        exportProblem(body) ??
        offeredProblem(key, isOfferedTo(body.offeredTo, own ?? ''), own)
      )
    case 'ClusterSetIP':
      return namespaceProblem(key.namespace, lists) ?? serviceProblem(key.name)
    case 'EndpointSlice':
      return (
        namespaceProblem(key.namespace, lists) ??
        sliceProblem(key.name, body) ??
        offeredProblem(key, (body.offeredTo as readonly string[] | undefined)?.includes(own ?? '') !== false, own)
      )
    case 'Endpoint':
      return endpointProblem(body.spec, key)
    case 'Cluster':
      return body.spec.id === key.cluster
        ? undefined
        : problem('ForeignClaim', `the record claims to be cluster ${quote(body.spec.id)}`)
    case 'MemberStatus':
      return reportedProblem(key, body)
    case 'Topology':
      // The codec has checked its names.
      return undefined
  }
}

/**
 * Checks a remote cluster's facts. No other cluster may claim the pod and service addresses of this cluster (`own`),
 * and no other cluster's pods may have addresses that this cluster requires outside the lanes (`needed`).
 */
export function clusterProblem(
  spec: ClusterSpec,
  own: Pick<ClusterSpec, 'podCIDRs' | 'serviceCIDRs' | 'globalCIDRs'>,
  needed: readonly NeededRange[] = [],
): Problem | undefined {
  try {
    prefixPairs(spec)
    for (const text of spec.podCIDRs) parsePrefix(text, 'podCIDRs')
    const all = routedPrefixes(spec)
    const routed = routedHere(all, own)
    const unusable = all.find((prefix) => specialPart(prefix) !== undefined)
    if (unusable !== undefined) return problem('RangeReserved', `${formatPrefix(unusable)} is not a usable network`)
    for (const field of ['podCIDRs', 'serviceCIDRs'] as const) {
      const taken = own[field].map((text) => parsePrefix(text, field))
      const clash = routed.find((prefix) => taken.some((one) => overlaps(one, prefix)))
      const words = field === 'podCIDRs' ? 'pod CIDRs' : 'service CIDRs'
      if (clash !== undefined)
        return problem('OverlapsOwnRange', `${formatPrefix(clash)} overlaps this cluster's own ${words}`)
    }
    // Its nodes would treat our pods' addresses as Services of their own, so answers would never arrive.
    const taken = spec.serviceCIDRs.find((text) =>
      routedPrefixes(own).some((one) => overlaps(one, parsePrefix(text, 'serviceCIDRs'))),
    )
    if (taken !== undefined)
      return problem('OverlapsOwnRange', `its service CIDR ${taken} overlaps the pod CIDRs of this cluster`)
    return neededProblem(routed, needed) ?? malformed(formProblem(RECORD_FORMS.Cluster.fields.spec, spec))
  } catch (error) {
    if (error instanceof InvalidAddressError) return problem('InvalidValue', error.message)
    throw error
  }
}

/**
 * Whether a cluster takes required addresses. The cluster may have been accepted before they were known, or by an
 * earlier release.
 */
export function takesNeeded(
  spec: ClusterSpec,
  own: Pick<ClusterSpec, 'podCIDRs'>,
  needed: readonly NeededRange[],
): Problem | undefined {
  try {
    return neededProblem(routedHere(routedPrefixes(spec), own), needed)
  } catch (error) {
    if (error instanceof InvalidAddressError) return undefined
    throw error
  }
}

/** Ignores IPv6 ranges of others if no pod here has IPv6: nothing routes to them, so they cannot collide. */
function routedHere(prefixes: readonly Prefix[], own: Pick<ClusterSpec, 'podCIDRs'>): Prefix[] {
  const families = podFamilies(own).map(familyNumber)
  return prefixes.filter(({ family }) => families.includes(family))
}

function neededProblem(routed: readonly Prefix[], needed: readonly NeededRange[]): Problem | undefined {
  for (const prefix of routed) {
    const found = neededIn(prefix, needed)
    if (found !== undefined)
      return problem(
        'OverlapsNeeded',
        `${formatPrefix(prefix)} ${neededText(found)}: this cluster must reach that address directly, not through lanes`,
      )
  }
  return undefined
}

function reportedProblem({ cluster, namespace, name }: RecordKey, status: MemberStatus): Problem | undefined {
  if (namespace !== '' || name !== cluster)
    return problem('ForeignClaim', `the record claims to be the status of ${quote(`${namespace}/${name}`)}`)
  return malformed(statusProblem(status))
}

function malformed(wrong: FormProblem | undefined): Problem | undefined {
  return wrong && problem('InvalidValue', `${wrong.field} ${wrong.problem}`)
}

function namespaceProblem(namespace: string, lists: NamespaceLists): Problem | undefined {
  if (textProblem(KEY_FORMS.ServiceExport.namespace, namespace) !== undefined)
    return problem('InvalidValue', `namespace ${quote(namespace)} is not a DNS label`)
  const why = excludedNamespace(namespace, lists)
  return why === undefined ? undefined : problem('NamespaceNotAllowed', `namespace ${quote(namespace)} ${why}`)
}

function serviceProblem(name: string): Problem | undefined {
  return textProblem(KEY_FORMS.ServiceExport.name, name) === undefined
    ? undefined
    : problem('InvalidValue', `service name ${quote(name)} is not a DNS label`)
}

function exportProblem(body: ServiceExportBody): Problem | undefined {
  const wrong = formProblem(RECORD_FORMS.ServiceExport, body)
  return wrong && (namedProblem(body, wrong.field) ?? malformed(wrong))
}

/** Names the value instead of its position. */
function namedProblem(body: ServiceExportBody, field: string): Problem | undefined {
  const [, top = '', index] = /^(\w+)(?:\[(\d+)\]\.)?/.exec(field) ?? []
  const port = top === 'ports' && index !== undefined ? body.ports[Number(index)] : undefined
  if (port !== undefined) return problem('InvalidValue', `port ${quote(port.name ?? '')} ${port.port} is malformed`)
  if (top === 'internalTrafficPolicy' || top === 'trafficDistribution')
    return problem('InvalidValue', `${top} ${quote(body[top] ?? '')}`)
  if (top !== 'exportedLabels' && top !== 'exportedAnnotations') return undefined
  const form = RECORD_FORMS.ServiceExport.fields[top]
  const pair = Object.entries(body[top]).find(
    ([key, value]) => (textProblem(form.key, key) ?? textProblem(form.value, value)) !== undefined,
  )
  if (pair === undefined) return undefined
  const [what, text] = top === 'exportedLabels' ? ['label', pair.join('=')] : ['annotation', pair[0]]
  return problem('InvalidValue', `${what} ${quote(text)} is malformed`)
}

/** A broker of this release does not send such a record. */
function offeredProblem({ cluster }: RecordKey, isOffered: boolean, own: string | undefined): Problem | undefined {
  if (own === undefined || cluster === own || isOffered) return undefined
  return problem('NotOffered', `cluster ${quote(cluster)} does not offer it to this cluster`)
}

/** An endpoint that cannot be used is left out alone (plan-service.ts). */
function sliceProblem(name: string, body: EndpointSliceBody): Problem | undefined {
  const badName = textProblem(KEY_FORMS.EndpointSlice.name, name)
  if (badName !== undefined) return problem('InvalidValue', `name ${badName}`)
  return serviceProblem(body.service) ?? malformed(formProblem(sliceForm(body), body, PARTS))
}

/** A candidate that cannot be used is left out alone (plan-imports.ts). */
function endpointProblem(spec: EndpointSpec, key: RecordKey): Problem | undefined {
  if (spec.cluster !== key.cluster)
    return problem('ForeignClaim', `the record claims to belong to cluster ${quote(spec.cluster)}`)
  const wrong = formProblem(RECORD_FORMS.Endpoint.fields.spec, spec, PARTS)
  if (wrong?.field === 'node') return problem('InvalidValue', `node ${quote(spec.node)} is not a DNS name`)
  if (wrong !== undefined) return malformed(wrong)
  const { length } = endpointName(spec.cluster, spec.node, spec.lane)
  return length > MAX_ENDPOINT_NAME
    ? problem('InvalidValue', `its name has ${length} characters: expected at most ${MAX_ENDPOINT_NAME}`)
    : undefined
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}
