/**
 * What other members say is checked again before it becomes an object here: the broker judges first, but one broken
 * broker must not be enough to reach into this cluster. Pure. Every function gives the problem in words, or undefined.
 */
import { prefixPairs, routedPrefixes } from '../model/addressing.ts'
import { isDnsLabel, isDnsSubdomain } from '../model/ids.ts'
import { InvalidAddressError, type Prefix, classifyAddress, formatPrefix, overlaps, parsePrefix } from '../model/ip.ts'
import type { ClusterSpec, EndpointSpec, ImportPort } from '../model/objects.ts'
import type { ServiceExportBody, StoredRecord } from '../model/records.ts'

const LABEL_VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/
const LABEL_NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/
/** appProtocol (a label name, possibly prefixed), traffic policies: words that API servers accept. */
const WORD = /^[A-Za-z0-9]([-A-Za-z0-9_./]{0,251}[A-Za-z0-9])?$/

/** Takes a record as it came; `allowed` lists system namespaces that may be used all the same. */
export function recordProblem(record: StoredRecord, allowed: readonly string[]): string | undefined {
  const { key, body } = record
  if (body.kind !== 'ClusterSetIP' && !isDnsLabel(key.cluster))
    return `cluster id ${quote(key.cluster)} is not a DNS label`
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
      return body.spec.id === '' || !isDnsLabel(body.spec.id)
        ? `cluster id ${quote(body.spec.id)} is not a DNS label`
        : undefined
  }
}

/** Takes a remote cluster's facts and this cluster's own pod CIDRs, which nobody else may claim. */
export function clusterProblem(spec: ClusterSpec, ownPodPrefixes: readonly Prefix[]): string | undefined {
  try {
    prefixPairs(spec)
    for (const text of spec.podCIDRs) parsePrefix(text, 'podCIDRs')
    const routed = routedPrefixes(spec)
    const unusable = routed.find((prefix) => classifyAddress(prefix) !== 'usable')
    if (unusable !== undefined) return `${formatPrefix(unusable)} is no usable network`
    const clash = routed.find((prefix) => ownPodPrefixes.some((own) => overlaps(own, prefix)))
    return clash === undefined ? undefined : `${formatPrefix(clash)} overlaps this cluster's own pod CIDRs`
  } catch (error) {
    if (error instanceof InvalidAddressError) return error.message
    throw error
  }
}

function namespaceProblem(namespace: string, allowed: readonly string[]): string | undefined {
  if (!isDnsLabel(namespace)) return `namespace ${quote(namespace)} is not a DNS label`
  // A name in these would be believed by the platform itself.
  if (!/^(kube-|openshift)/.test(namespace) || allowed.includes(namespace)) return undefined
  return `namespace ${quote(namespace)} is a system namespace`
}

function serviceProblem(name: string): string | undefined {
  return isDnsLabel(name) ? undefined : `service name ${quote(name)} is not a DNS label`
}

function exportProblem(body: ServiceExportBody): string | undefined {
  const policy = body.internalTrafficPolicy
  if (policy !== undefined && policy !== 'Cluster' && policy !== 'Local')
    return `internalTrafficPolicy ${quote(policy)}`
  const distribution = body.trafficDistribution
  if (distribution !== undefined && !WORD.test(distribution)) return `trafficDistribution ${quote(distribution)}`
  const port = body.ports.find((one) => !isGoodPort(one))
  if (port !== undefined) return `port ${quote(port.name ?? '')} ${port.port} is malformed`
  const label = Object.entries(body.exportedLabels).find(([key, value]) => !isLabelKey(key) || !LABEL_VALUE.test(value))
  if (label !== undefined) return `label ${quote(label.join('='))} is malformed`
  const annotation = Object.keys(body.exportedAnnotations).find((key) => !isLabelKey(key))
  return annotation === undefined ? undefined : `annotation ${quote(annotation)} is malformed`
}

function isGoodPort({ name, port, appProtocol }: ImportPort): boolean {
  if (name !== undefined && name !== '' && !isDnsLabel(name)) return false
  if (appProtocol !== undefined && appProtocol !== '' && !WORD.test(appProtocol)) return false
  return Number.isInteger(port) && port >= 1 && port <= 65_535
}

function isLabelKey(key: string): boolean {
  const slash = key.indexOf('/')
  if (slash === -1) return LABEL_NAME.test(key)
  return isDnsSubdomain(key.slice(0, slash)) && LABEL_NAME.test(key.slice(slash + 1))
}

function endpointProblem(spec: EndpointSpec, cluster: string): string | undefined {
  if (spec.cluster !== cluster) return `it claims to belong to cluster ${quote(spec.cluster)}`
  if (!isDnsSubdomain(spec.node)) return `node ${quote(spec.node)} is not a DNS name`
  return undefined
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 100))
}
