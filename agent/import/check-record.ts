/**
 * Validates what other members state before it becomes an object here. The broker validates it first, but one
 * compromised broker must not be enough to affect this cluster. Pure. Every function gives the problem, or undefined.
 */
import {
  InvalidAddressError,
  MAX_ADDRESSED_LANE,
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
import {
  type ClusterSpec,
  type EndpointSpec,
  type ImportPort,
  MAX_NOT_IMPORTED,
  type MemberStatus,
  type RecordKey,
  type ServiceExportBody,
  type StoredRecord,
  endpointName,
  findingProblem,
  guardedNamespace,
  isDnsLabel,
  isDnsSubdomain,
  isLabelValue,
  isQualifiedName,
  isReservedId,
  openConnectionsProblem,
  reportProblem,
} from '../../model/model.ts'
import { type Problem, problem } from '../../model/reasons/reasons.ts'

/**
 * Limits the object name, which becomes a file name on a site. A file name has at most 255 octets, with the extension.
 */
const MAX_ENDPOINT_NAME = 240

/**
 * Takes a record as received. `allowed` lists guarded namespaces that may be used. `isKnown` tells whether a cluster is
 * already in the local API: a cluster keeps an id that was reserved later.
 */
export function recordProblem(
  record: StoredRecord,
  allowed: readonly string[],
  isKnown: (cluster: string) => boolean = () => false,
): Problem | undefined {
  const { key, body } = record
  if (body.kind === 'ClusterSetIP') {
    if (key.cluster !== '')
      return problem(
        'ForeignClaim',
        `a ClusterSetIP record of cluster ${quote(key.cluster)}: only the broker assigns clusterset IPs`,
      )
  } else if (!isDnsLabel(key.cluster))
    return problem('InvalidValue', `cluster id ${quote(key.cluster)} is not a DNS label`)
  else if (isReservedId(key.cluster) && !isKnown(key.cluster))
    return problem('ClusterIdReserved', `cluster id ${quote(key.cluster)} is reserved`)
  switch (body.kind) {
    case 'ServiceExport':
      return namespaceProblem(key.namespace, allowed) ?? serviceProblem(key.name) ?? exportProblem(body)
    case 'ClusterSetIP':
      return namespaceProblem(key.namespace, allowed) ?? serviceProblem(key.name)
    case 'EndpointSlice':
      return namespaceProblem(key.namespace, allowed) ?? serviceProblem(body.service)
    case 'Endpoint':
      return endpointProblem(body.spec, key.cluster)
    case 'Cluster':
      return body.spec.id === key.cluster
        ? undefined
        : problem('ForeignClaim', `the record claims to be cluster ${quote(body.spec.id)}`)
    case 'MemberStatus':
      return statusProblem(key, body)
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
    const taken = spec.serviceCIDRs.find((text) => routedPrefixes(own).some((one) => overlaps(one, parsePrefix(text))))
    if (taken !== undefined)
      return problem('OverlapsOwnRange', `its service CIDR ${taken} overlaps the pod CIDRs of this cluster`)
    return neededProblem(routed, needed)
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
        `${formatPrefix(prefix)} ${neededText(found)}: this cluster needs that address outside the lanes`,
      )
  }
  return undefined
}

function statusProblem(
  { cluster, namespace, name }: RecordKey,
  { notImported, leftOut, openConnections, report }: MemberStatus,
): Problem | undefined {
  if (namespace !== '' || name !== cluster)
    return problem('ForeignClaim', `the record claims to be the status of ${quote(`${namespace}/${name}`)}`)
  if (notImported.length > MAX_NOT_IMPORTED)
    return problem('InvalidValue', `${notImported.length} findings: expected at most ${MAX_NOT_IMPORTED}`)
  if (!Number.isSafeInteger(leftOut) || leftOut < 0) return problem('InvalidValue', `leftOut ${leftOut}`)
  const open = openConnections === undefined ? undefined : openConnectionsProblem(openConnections)
  if (open !== undefined) return problem('InvalidValue', `openConnections ${open}`)
  for (const one of notImported) {
    const wrong = findingProblem(one)
    if (wrong !== undefined) return problem('InvalidValue', `${wrong.field} ${wrong.problem}`)
  }
  const reported = report && reportProblem(report)
  return reported && problem('InvalidValue', `report.${reported.field} ${reported.problem}`)
}

function namespaceProblem(namespace: string, allowed: readonly string[]): Problem | undefined {
  if (!isDnsLabel(namespace)) return problem('InvalidValue', `namespace ${quote(namespace)} is not a DNS label`)
  const guard = guardedNamespace(namespace)
  return guard === undefined || allowed.includes(namespace)
    ? undefined
    : problem('NamespaceNotAllowed', `namespace ${quote(namespace)} ${guard}`)
}

function serviceProblem(name: string): Problem | undefined {
  return isDnsLabel(name) ? undefined : problem('InvalidValue', `service name ${quote(name)} is not a DNS label`)
}

function exportProblem(body: ServiceExportBody): Problem | undefined {
  const policy = body.internalTrafficPolicy
  if (policy !== undefined && policy !== 'Cluster' && policy !== 'Local')
    return problem('InvalidValue', `internalTrafficPolicy ${quote(policy)}`)
  const distribution = body.trafficDistribution
  if (distribution !== undefined && !isQualifiedName(distribution))
    return problem('InvalidValue', `trafficDistribution ${quote(distribution)}`)
  const port = body.ports.find((one) => !isGoodPort(one))
  if (port !== undefined) return problem('InvalidValue', `port ${quote(port.name ?? '')} ${port.port} is malformed`)
  const label = Object.entries(body.exportedLabels).find(
    ([key, value]) => !isQualifiedName(key) || !isLabelValue(value),
  )
  if (label !== undefined) return problem('InvalidValue', `label ${quote(label.join('='))} is malformed`)
  const annotation = Object.keys(body.exportedAnnotations).find((key) => !isQualifiedName(key))
  return annotation === undefined ? undefined : problem('InvalidValue', `annotation ${quote(annotation)} is malformed`)
}

function isGoodPort({ name, port, appProtocol }: ImportPort): boolean {
  if (name !== undefined && name !== '' && !isDnsLabel(name)) return false
  if (appProtocol !== undefined && appProtocol !== '' && !isQualifiedName(appProtocol)) return false
  return Number.isInteger(port) && port >= 1 && port <= 65_535
}

function endpointProblem(spec: EndpointSpec, cluster: string): Problem | undefined {
  if (spec.cluster !== cluster)
    return problem('ForeignClaim', `the record claims to belong to cluster ${quote(spec.cluster)}`)
  if (!isDnsSubdomain(spec.node)) return problem('InvalidValue', `node ${quote(spec.node)} is not a DNS name`)
  if (!Number.isInteger(spec.lane) || spec.lane < 0 || spec.lane > MAX_ADDRESSED_LANE)
    return problem('InvalidValue', `lane ${spec.lane}: expected 0 to ${MAX_ADDRESSED_LANE}`)
  const { length } = endpointName(spec.cluster, spec.node, spec.lane)
  return length > MAX_ENDPOINT_NAME
    ? problem('InvalidValue', `its name has ${length} characters: expected at most ${MAX_ENDPOINT_NAME}`)
    : undefined
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}
