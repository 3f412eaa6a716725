/** Converts record bodies between protocol buffers and the model, and checks their shapes, sizes and known words. */
import {
  type ClusterBody,
  type ClusterId,
  type ClusterSelector,
  type ClusterSetIpBody,
  type EndpointBody,
  type EndpointPort,
  type EndpointSliceBody,
  type ImportPort,
  type LabelSelector,
  MAX_NOT_IMPORTED,
  MAX_REPORTED_PROBLEMS,
  MAX_REPORTED_TEXT,
  MAX_REPORTED_VERSIONS,
  type MemberReport,
  type MemberStatus,
  NOT_IMPORTED_REASONS,
  type NamespaceChoice,
  type NotImported,
  type OfferRule,
  type OpenConnections,
  PROBLEM_SEVERITIES,
  type PublishedEndpoint,
  type RecordBody,
  type ReportedProblem,
  type ServiceExportBody,
  type Topology,
  type TopologyBody,
  isDnsLabel,
} from '../../model/model.ts'
import { type TextForm, RECORD_FORMS, isPublicKey } from '../../model/grammar/grammar.ts'
import { MAX_TOPOLOGY_CLUSTERS, MAX_TOPOLOGY_GROUPS, MAX_TOPOLOGY_PAIRS } from '../../model/values/values.ts'
import type * as wire from '../gen/broker.ts'
import { MAX_NAME } from '../protocol.ts'
import {
  CodecError,
  count,
  keyPart,
  list,
  numberOf,
  oneOf,
  optional,
  pairsToRecord,
  present,
  recordToPairs,
  shown,
  text,
  textOf,
  texts,
  textsOf,
  wordOf,
} from './codec-checks.ts'

const EXPORT = RECORD_FORMS.ServiceExport.fields
const OFFER = EXPORT.offeredTo.item.fields
const CHOICE = OFFER.namespaces.fields
const SELECTOR = CHOICE.selectors.item.fields
const PROPERTIES = EXPORT.clusterSelectors.item.fields.propertySelector.fields
type Requirement = NonNullable<LabelSelector['matchExpressions']>[number]
const EXPORT_PORT = EXPORT.ports.item.fields
const SLICE = RECORD_FORMS.EndpointSlice.fields
const SLICE_PORT = SLICE.ports.item.fields
const SLICE_ENDPOINT = SLICE.endpoints.item.fields
const ZONES = SLICE_ENDPOINT.hints.fields.forZones
const GATEWAY = RECORD_FORMS.Endpoint.fields.spec.fields
const CANDIDATE = GATEWAY.candidates.item.fields
const CLUSTER = RECORD_FORMS.Cluster.fields.spec.fields

export function bodyToWire(body: RecordBody): wire.RecordBody {
  switch (body.kind) {
    case 'ServiceExport':
      return { body: { $case: 'serviceExport', value: serviceExportToWire(body) } }
    case 'EndpointSlice':
      return { body: { $case: 'endpointSlice', value: sliceToWire(body) } }
    case 'Endpoint':
      return { body: { $case: 'endpoint', value: copyEndpoint(body) } }
    case 'Cluster':
      return { body: { $case: 'cluster', value: clusterToWire(body) } }
    case 'ClusterSetIP':
      return { body: { $case: 'clusterSetIp', value: { ips: [...body.ips] } } }
    case 'MemberStatus':
      return { body: { $case: 'memberStatus', value: statusToWire(body) } }
    case 'Topology':
      return { body: { $case: 'topology', value: topologyToWire(body) } }
  }
}

/** Throws CodecError. A body of a kind that this version does not know counts as missing. */
export function bodyFromWire(body: wire.RecordBody | undefined, field: string): RecordBody {
  const known = present(body?.body, field)
  switch (known.$case) {
    case 'serviceExport':
      return serviceExportFromWire(known.value, field)
    case 'endpointSlice':
      return sliceFromWire(known.value, field)
    case 'endpoint':
      return endpointFromWire(known.value, field)
    case 'cluster':
      return clusterFromWire(known.value, field)
    case 'clusterSetIp':
      return clusterSetIpFromWire(known.value, field)
    case 'memberStatus':
      return { kind: 'MemberStatus', ...statusFromWire(known.value, field) }
    case 'topology':
      return topologyFromWire(known.value, field)
  }
}

function serviceExportToWire(body: ServiceExportBody): wire.ServiceExport {
  return {
    uid: body.uid,
    type: body.type,
    ports: body.ports.map((port) => ({ ...port })),
    sessionAffinity: body.sessionAffinity,
    sessionAffinityTimeoutSeconds: body.sessionAffinityTimeoutSeconds,
    internalTrafficPolicy: body.internalTrafficPolicy,
    trafficDistribution: body.trafficDistribution,
    ipFamilies: [...body.ipFamilies],
    exportedLabels: recordToPairs(body.exportedLabels),
    exportedAnnotations: recordToPairs(body.exportedAnnotations),
    offeredTo: body.offeredTo === undefined ? undefined : { rules: body.offeredTo.map(ruleToWire) },
    clusterSelectors: body.clusterSelectors && { selectors: body.clusterSelectors.map(clusterSelectorToWire) },
    drained: body.drained,
    drainedNow: body.drainedNow,
    keepsOpen: body.keepsOpen,
    endsOpen: body.endsOpen,
  }
}

function serviceExportFromWire(body: wire.ServiceExport, field: string): ServiceExportBody {
  const timeout = body.sessionAffinityTimeoutSeconds
  const seconds = EXPORT.sessionAffinityTimeoutSeconds
  return {
    kind: 'ServiceExport',
    uid: textOf(EXPORT.uid, body.uid, `${field}.uid`),
    type: wordOf(EXPORT.type, body.type, `${field}.type`),
    ports: list(body.ports, `${field}.ports`, EXPORT.ports.most, importPort),
    sessionAffinity: wordOf(EXPORT.sessionAffinity, body.sessionAffinity, `${field}.sessionAffinity`),
    ...optional(
      'sessionAffinityTimeoutSeconds',
      timeout === undefined ? undefined : numberOf(seconds, timeout, `${field}.sessionAffinityTimeoutSeconds`),
    ),
    ...textIfAny('internalTrafficPolicy', EXPORT.internalTrafficPolicy, body.internalTrafficPolicy, field),
    ...textIfAny('trafficDistribution', EXPORT.trafficDistribution, body.trafficDistribution, field),
    ipFamilies: list(body.ipFamilies, `${field}.ipFamilies`, EXPORT.ipFamilies.most, (one, path) =>
      wordOf(EXPORT.ipFamilies.item, one, path),
    ),
    exportedLabels: pairsToRecord(EXPORT.exportedLabels, body.exportedLabels, `${field}.exportedLabels`),
    exportedAnnotations: pairsToRecord(
      EXPORT.exportedAnnotations,
      body.exportedAnnotations,
      `${field}.exportedAnnotations`,
    ),
    ...optional(
      'offeredTo',
      body.offeredTo && list(body.offeredTo.rules, `${field}.offeredTo`, EXPORT.offeredTo.most, ruleFromWire),
    ),
    ...optional(
      'clusterSelectors',
      body.clusterSelectors &&
        list(
          body.clusterSelectors.selectors,
          `${field}.clusterSelectors`,
          EXPORT.clusterSelectors.most,
          clusterSelectorFromWire,
        ),
    ),
    ...optional('drained', body.drained),
    ...optional('drainedNow', body.drainedNow),
    ...optional('keepsOpen', body.keepsOpen),
    ...optional('endsOpen', body.endsOpen),
  }
}

function clusterSelectorToWire({ propertySelector }: ClusterSelector): wire.ClusterSelector {
  if (propertySelector === undefined) return { propertySelector: undefined }
  const { matchProperties, matchExpressions } = propertySelector
  return {
    propertySelector: {
      matchLabels: matchProperties && { pairs: recordToPairs(matchProperties) },
      matchExpressions: matchExpressions && { requirements: matchExpressions.map(requirementToWire) },
    },
  }
}

function clusterSelectorFromWire({ propertySelector }: wire.ClusterSelector, field: string): ClusterSelector {
  if (propertySelector === undefined) return {}
  const { matchLabels, matchExpressions } = propertySelector
  const path = `${field}.propertySelector`
  return {
    propertySelector: {
      ...optional(
        'matchProperties',
        matchLabels && pairsToRecord(PROPERTIES.matchProperties, matchLabels.pairs, `${path}.matchProperties`),
      ),
      ...optional(
        'matchExpressions',
        matchExpressions &&
          list(matchExpressions.requirements, `${path}.matchExpressions`, PROPERTIES.matchExpressions.most, (one, at) =>
            requirementFromWire(PROPERTIES.matchExpressions.item.fields, one, at),
          ),
      ),
    },
  }
}

function ruleToWire({ clusters, namespaces }: OfferRule): wire.OfferRule {
  const choice = namespaces && {
    names: [...namespaces.names],
    selectors: namespaces.selectors.map(selectorToWire),
  }
  return { clusters: [...clusters], namespaces: choice }
}

function ruleFromWire({ clusters, namespaces }: wire.OfferRule, field: string): OfferRule {
  return {
    clusters: idsFromWire(clusters, `${field}.clusters`),
    ...optional('namespaces', namespaces && choiceFromWire(namespaces, `${field}.namespaces`)),
  }
}

/** Admission and the importers check that they are labels. */
function idsFromWire(ids: readonly string[], field: string): ClusterId[] {
  return textsOf(OFFER.clusters, ids, field) as ClusterId[]
}

function choiceFromWire({ names, selectors }: wire.NamespaceChoice, field: string): NamespaceChoice {
  return {
    names: textsOf(CHOICE.names, names, `${field}.names`),
    selectors: list(selectors, `${field}.selectors`, CHOICE.selectors.most, selectorFromWire),
  }
}

function selectorToWire({ matchLabels, matchExpressions }: LabelSelector): wire.LabelSelector {
  return {
    matchLabels: matchLabels && { pairs: recordToPairs(matchLabels) },
    matchExpressions: matchExpressions && {
      requirements: matchExpressions.map(requirementToWire),
    },
  }
}

function requirementToWire({ key, operator, values }: Requirement): wire.LabelSelector_Requirement {
  return { key, operator, values: values && { values: [...values] } }
}

function selectorFromWire({ matchLabels, matchExpressions }: wire.LabelSelector, field: string): LabelSelector {
  const path = `${field}.matchExpressions`
  return {
    ...optional(
      'matchLabels',
      matchLabels && pairsToRecord(SELECTOR.matchLabels, matchLabels.pairs, `${field}.matchLabels`),
    ),
    ...optional(
      'matchExpressions',
      matchExpressions &&
        list(matchExpressions.requirements, path, SELECTOR.matchExpressions.most, (one, at) =>
          requirementFromWire(SELECTOR.matchExpressions.item.fields, one, at),
        ),
    ),
  }
}

function requirementFromWire(
  form: typeof PROPERTIES.matchExpressions.item.fields,
  { key, operator, values }: wire.LabelSelector_Requirement,
  field: string,
): Requirement {
  return {
    key: textOf(form.key, key, `${field}.key`),
    operator: wordOf(form.operator, operator, `${field}.operator`),
    ...optional('values', values && textsOf(form.values, values.values, `${field}.values`)),
  }
}

function importPort(port: wire.ServicePort, field: string): ImportPort {
  return {
    ...textIfAny('name', EXPORT_PORT.name, port.name, field),
    protocol: wordOf(EXPORT_PORT.protocol, port.protocol, `${field}.protocol`),
    port: numberOf(EXPORT_PORT.port, port.port, `${field}.port`),
    ...textIfAny('appProtocol', EXPORT_PORT.appProtocol, port.appProtocol, field),
  }
}

function sliceToWire(body: EndpointSliceBody): wire.EndpointSlice {
  return {
    service: body.service,
    addressType: body.addressType,
    ports: body.ports.map((port) => ({ ...port })),
    endpoints: body.endpoints.map(({ hints, ...endpoint }) => ({
      ...endpoint,
      addresses: [...endpoint.addresses],
      zoneHints: (hints?.forZones ?? []).map(({ name }) => name),
    })),
    offeredTo: body.offeredTo === undefined ? undefined : { ids: [...body.offeredTo] },
  }
}

function sliceFromWire(body: wire.EndpointSlice, field: string): EndpointSliceBody {
  return {
    kind: 'EndpointSlice',
    service: keyPart(body.service, `${field}.service`, SLICE.service.least),
    addressType: wordOf(SLICE.addressType, body.addressType, `${field}.addressType`),
    ports: list(body.ports, `${field}.ports`, SLICE.ports.most, slicePort),
    endpoints: list(body.endpoints, `${field}.endpoints`, SLICE.endpoints.most, sliceEndpoint),
    ...optional('offeredTo', body.offeredTo && idsFromWire(body.offeredTo.ids, `${field}.offeredTo`)),
  }
}

function slicePort({ name, protocol, port, appProtocol }: wire.SlicePort, field: string): EndpointPort {
  return {
    ...textIfAny('name', SLICE_PORT.name, name, field),
    ...optional(
      'protocol',
      protocol === undefined ? undefined : wordOf(SLICE_PORT.protocol, protocol, `${field}.protocol`),
    ),
    ...optional('port', port === undefined ? undefined : numberOf(SLICE_PORT.port, port, `${field}.port`)),
    ...textIfAny('appProtocol', SLICE_PORT.appProtocol, appProtocol, field),
  }
}

function sliceEndpoint(endpoint: wire.SliceEndpoint, field: string): PublishedEndpoint {
  const conditions = endpoint.conditions
  const zones = texts(endpoint.zoneHints, `${field}.zoneHints`, ZONES.most, ZONES.item.fields.name.most)
  return {
    addresses: textsOf(SLICE_ENDPOINT.addresses, endpoint.addresses, `${field}.addresses`),
    ...textIfAny('hostname', SLICE_ENDPOINT.hostname, endpoint.hostname, field),
    ...textIfAny('nodeName', SLICE_ENDPOINT.nodeName, endpoint.nodeName, field),
    ...textIfAny('zone', SLICE_ENDPOINT.zone, endpoint.zone, field),
    ...textIfAny('pod', SLICE_ENDPOINT.pod, endpoint.pod, field),
    ...optional('hints', zones.length === 0 ? undefined : { forZones: zones.map((name) => ({ name })) }),
    ...optional(
      'conditions',
      conditions === undefined
        ? undefined
        : {
            ...optional('ready', conditions.ready),
            ...optional('serving', conditions.serving),
            ...optional('terminating', conditions.terminating),
          },
    ),
  }
}

function copyEndpoint({ spec }: EndpointBody): wire.Endpoint {
  return {
    cluster: spec.cluster,
    node: spec.node,
    lane: spec.lane,
    publicKey: spec.publicKey,
    ...optional('nextPublicKey', spec.nextPublicKey),
    candidates: spec.candidates.map((candidate) => ({ ...candidate })),
    capabilities: [...spec.capabilities],
  }
}

function endpointFromWire(body: wire.Endpoint, field: string): EndpointBody {
  return {
    kind: 'Endpoint',
    spec: {
      cluster: keyPart(body.cluster, `${field}.cluster`, GATEWAY.cluster.least),
      node: keyPart(body.node, `${field}.node`, GATEWAY.node.least),
      lane: numberOf(GATEWAY.lane, body.lane, `${field}.lane`),
      publicKey: wireguardKey(body.publicKey, `${field}.publicKey`),
      ...optional(
        'nextPublicKey',
        body.nextPublicKey === undefined ? undefined : wireguardKey(body.nextPublicKey, `${field}.nextPublicKey`),
      ),
      candidates: list(
        body.candidates,
        `${field}.candidates`,
        GATEWAY.candidates.most,
        ({ kind, address, port }, path) => ({
          kind: wordOf(CANDIDATE.kind, kind, `${path}.kind`),
          address: textOf(CANDIDATE.address, address, `${path}.address`),
          port: numberOf(CANDIDATE.port, port, `${path}.port`),
        }),
      ),
      capabilities: textsOf(GATEWAY.capabilities, body.capabilities, `${field}.capabilities`),
    },
  }
}

function clusterToWire({ spec }: ClusterBody): wire.Cluster {
  return {
    id: spec.id,
    index: spec.index,
    podCidrs: [...spec.podCIDRs],
    serviceCidrs: [...spec.serviceCIDRs],
    globalCidrs: [...spec.globalCIDRs],
    labels: recordToPairs(spec.labels),
    drained: spec.drained,
    drainedNow: spec.drainedNow,
    properties: spec.properties && { pairs: recordToPairs(spec.properties) },
  }
}

function clusterFromWire(body: wire.Cluster, field: string): ClusterBody {
  return {
    kind: 'Cluster',
    spec: {
      id: keyPart(body.id, `${field}.id`, CLUSTER.id.least),
      index: numberOf(CLUSTER.index, body.index, `${field}.index`),
      podCIDRs: textsOf(CLUSTER.podCIDRs, body.podCidrs, `${field}.podCIDRs`),
      serviceCIDRs: textsOf(CLUSTER.serviceCIDRs, body.serviceCidrs, `${field}.serviceCIDRs`),
      globalCIDRs: textsOf(CLUSTER.globalCIDRs, body.globalCidrs, `${field}.globalCIDRs`),
      labels: pairsToRecord(CLUSTER.labels, body.labels, `${field}.labels`),
      ...(body.drained === true ? { drained: true } : {}),
      ...(body.drainedNow === true ? { drainedNow: true } : {}),
      ...optional(
        'properties',
        body.properties && pairsToRecord(CLUSTER.properties, body.properties.pairs, `${field}.properties`),
      ),
    },
  }
}

function clusterSetIpFromWire(body: wire.ClusterSetIP, field: string): ClusterSetIpBody {
  return { kind: 'ClusterSetIP', ips: textsOf(RECORD_FORMS.ClusterSetIP.fields.ips, body.ips, `${field}.ips`) }
}

/** Returns `{ [key]: value }`, or `{}` if there is no value. */
function textIfAny<K extends string>(
  key: K,
  form: TextForm,
  value: string | undefined,
  field: string,
): { readonly [P in K]?: string } {
  return value === undefined ? {} : optional(key, textOf(form, value, `${field}.${key}`))
}

/** Checks a WireGuard public key: 32 bytes in base64, as `wg` prints it. */
function wireguardKey(value: string, field: string): string {
  if (!isPublicKey(value)) {
    throw new CodecError(field, 'expected a WireGuard public key: 32 bytes in base64')
  }
  return value
}

// Which clusters link with which.

const TOPOLOGY_MODES = ['full', 'groups', 'hub-and-spoke', 'pairs'] as const satisfies readonly Topology['mode'][]
type TopologyPair = NonNullable<Topology['pairs']>[number]
type TopologySide = TopologyPair['and']

function topologyToWire({ number, topology }: TopologyBody): wire.Topology {
  const { mode, groups = [], hubs = [], via = [], pairs = [] } = topology
  const pairToWire = ({ between, and }: TopologyPair): wire.TopologyPair => {
    return { between: sideToWire(between), and: sideToWire(and) }
  }
  return {
    number,
    mode,
    groups: groups.map(({ name, clusters }) => ({ name, clusters: [...clusters] })),
    hubs: [...hubs],
    pairs: pairs.filter((pair) => pair.via === undefined).map(pairToWire),
    via: [...via],
    transitPairs: pairs.flatMap((pair) => {
      return pair.via === undefined ? [] : [{ pair: pairToWire(pair), via: [...pair.via] }]
    }),
  }
}

function sideToWire({ clusters, selector }: TopologySide): wire.TopologySide {
  return { clusters: clusters && { ids: [...clusters] }, selector: selector && selectorToWire(selector) }
}

/** Only the field of the mode is read. Throws CodecError, also for a mode of a later release. */
function topologyFromWire(body: wire.Topology, field: string): TopologyBody {
  const mode = oneOf(body.mode, `${field}.mode`, TOPOLOGY_MODES)
  const number = count(body.number, `${field}.number`)
  const topology: Topology = {
    mode,
    ...optional(
      'groups',
      mode === 'groups' ? list(body.groups, `${field}.groups`, MAX_TOPOLOGY_GROUPS, groupFromWire) : undefined,
    ),
    ...optional('hubs', mode === 'hub-and-spoke' ? labelsOf(body.hubs, `${field}.hubs`) : undefined),
    ...optional(
      'via',
      mode === 'hub-and-spoke' && body.via.length > 0 ? labelsOf(body.via, `${field}.via`) : undefined,
    ),
    ...optional('pairs', mode === 'pairs' ? pairsFromWire(body, field) : undefined),
  }
  return { kind: 'Topology', number, topology }
}

function groupFromWire({ name, clusters }: wire.TopologyGroup, field: string) {
  return { name: aLabel(name, `${field}.name`), clusters: labelsOf(clusters, `${field}.clusters`) }
}

function pairsFromWire({ pairs, transitPairs }: wire.Topology, field: string): TopologyPair[] {
  const most = MAX_TOPOLOGY_PAIRS
  return [
    ...list(pairs, `${field}.pairs`, most, pairFromWire),
    ...list(transitPairs, `${field}.transit_pairs`, most - pairs.length, transitPairFromWire),
  ]
}

function transitPairFromWire({ pair, via }: wire.TransitPair, field: string): TopologyPair {
  // Without a list it would be a pair that links directly.
  if (via.length === 0) throw new CodecError(`${field}.via`, 'expected at least one cluster')
  return { ...pairFromWire(present(pair, `${field}.pair`), field), via: labelsOf(via, `${field}.via`) }
}

function pairFromWire({ between, and }: wire.TopologyPair, field: string) {
  return { between: sideFromWire(between, `${field}.between`), and: sideFromWire(and, `${field}.and`) }
}

function sideFromWire(side: wire.TopologySide | undefined, field: string): TopologySide {
  const { clusters, selector } = present(side, field)
  return {
    ...optional('clusters', clusters && labelsOf(clusters.ids, `${field}.clusters`)),
    ...optional('selector', selector && selectorFromWire(selector, `${field}.selector`)),
  }
}

function labelsOf(values: readonly string[], field: string): string[] {
  return list(values, field, MAX_TOPOLOGY_CLUSTERS, aLabel)
}

function aLabel(value: string, field: string): string {
  if (!isDnsLabel(value)) throw new CodecError(field, `${shown(value)}: expected an RFC 1123 label`)
  return value
}

// What a member reports about itself.

export function statusToWire({ notImported, leftOut, openConnections, report }: MemberStatus): wire.MemberStatus {
  const findings = notImported.map((one) => ({ ...one }))
  return { notImported: findings, leftOut, openConnections: copied(openConnections), report: reportToWire(report) }
}

function reportToWire(report: MemberReport | undefined): wire.MemberReport | undefined {
  if (report === undefined) return undefined
  const { versions, lanes, exports, problems } = report
  return {
    versions: [...versions],
    lanesUp: lanes.up,
    lanes: lanes.of,
    exports: exports.count,
    exportsFailed: exports.failed,
    problems: problems.map((one) => ({ ...one })),
  }
}

/** Throws CodecError. Findings with a reason of a later version are counted in `leftOut`. */
export function statusFromWire(status: wire.MemberStatus | undefined, field: string): MemberStatus {
  const { notImported, leftOut, openConnections, report } = present(status, field)
  const findings = list(notImported, `${field}.notImported`, MAX_NOT_IMPORTED, findingFromWire)
  const known = findings.filter((one) => one !== undefined)
  const unknown = findings.length - known.length
  const all = Math.min(count(leftOut, `${field}.leftOut`) + unknown, Number.MAX_SAFE_INTEGER)
  return {
    notImported: known,
    leftOut: all,
    ...optional('openConnections', copied(openConnections)),
    ...optional('report', report && reportFromWire(report, `${field}.report`)),
  }
}

/** Checks only sizes and counts. Admission checks texts and numbers. */
function reportFromWire(report: wire.MemberReport, field: string): MemberReport {
  return {
    versions: texts(report.versions, `${field}.versions`, MAX_REPORTED_VERSIONS, MAX_REPORTED_TEXT),
    lanes: { up: report.lanesUp, of: report.lanes },
    exports: { count: report.exports, failed: report.exportsFailed },
    problems: list(report.problems, `${field}.problems`, MAX_REPORTED_PROBLEMS, problemFromWire),
  }
}

/** A severity of a later release becomes `degraded`, the middle one. */
function problemFromWire(one: wire.MemberReport_Problem, field: string): ReportedProblem {
  const severity = text(one.severity, `${field}.severity`, MAX_REPORTED_TEXT)
  return {
    code: text(one.code, `${field}.code`, MAX_REPORTED_TEXT),
    severity: PROBLEM_SEVERITIES.find((known) => known === severity) ?? 'degraded',
    count: one.count,
  }
}

/** Copies the known fields without those that a later release may add. Admission checks the number. */
export function copied(one: OpenConnections | undefined): wire.OpenConnections | undefined {
  return one === undefined ? undefined : { count: one.count, atLeast: one.atLeast }
}

function findingFromWire(one: wire.MemberStatus_NotImported, field: string): NotImported | undefined {
  text(one.reason, `${field}.reason`, MAX_NAME, 1)
  const where = {
    namespace: keyPart(one.namespace, `${field}.namespace`, 0),
    name: keyPart(one.name, `${field}.name`, 0),
    cluster: keyPart(one.cluster, `${field}.cluster`, 0),
  }
  const reason = NOT_IMPORTED_REASONS.find((known) => known === one.reason)
  return reason === undefined ? undefined : { reason, ...where }
}
