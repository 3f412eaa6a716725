/** Converts record bodies between protocol buffers and the model, and checks their shapes, sizes and known words. */
import {
  type ClusterBody,
  type ClusterSetIpBody,
  type EndpointBody,
  type EndpointPort,
  type EndpointSliceBody,
  type ImportPort,
  MAX_NOT_IMPORTED,
  MAX_REPORTED_PROBLEMS,
  MAX_REPORTED_TEXT,
  MAX_REPORTED_VERSIONS,
  MAX_ZONE_HINTS,
  type MemberReport,
  type MemberStatus,
  NOT_IMPORTED_REASONS,
  type NotImported,
  type OpenConnections,
  PROBLEM_SEVERITIES,
  type Protocol,
  type PublishedEndpoint,
  type RecordBody,
  type ReportedProblem,
  type ServiceExportBody,
} from '../../model/model.ts'
import type * as wire from '../gen/broker.ts'
import * as limits from '../protocol.ts'
import { MAX_NAME } from '../protocol.ts'
import {
  CodecError,
  count,
  integer,
  keyPart,
  list,
  oneOf,
  optional,
  pairsToRecord,
  present,
  recordToPairs,
  text,
  texts,
} from './codec-checks.ts'

const PROTOCOLS: readonly Protocol[] = ['TCP', 'UDP', 'SCTP']
const FAMILIES = ['IPv4', 'IPv6'] as const
const ADDRESS_TEXT = 64
const MAX_POD_KEY = 16

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
  }
}

function serviceExportFromWire(body: wire.ServiceExport, field: string): ServiceExportBody {
  const timeout = body.sessionAffinityTimeoutSeconds
  const policy = optionalText(body.internalTrafficPolicy, `${field}.internalTrafficPolicy`)
  const distribution = optionalText(body.trafficDistribution, `${field}.trafficDistribution`)
  return {
    kind: 'ServiceExport',
    uid: text(body.uid, `${field}.uid`, limits.MAX_NAME),
    type: oneOf(body.type, `${field}.type`, ['ClusterSetIP', 'Headless']),
    ports: list(body.ports, `${field}.ports`, limits.MAX_PORTS, importPort),
    sessionAffinity: oneOf(body.sessionAffinity, `${field}.sessionAffinity`, ['ClientIP', 'None']),
    ...optional(
      'sessionAffinityTimeoutSeconds',
      timeout === undefined ? undefined : integer(timeout, `${field}.sessionAffinityTimeoutSeconds`, 1, 86_400),
    ),
    ...optional('internalTrafficPolicy', policy),
    ...optional('trafficDistribution', distribution),
    ipFamilies: list(body.ipFamilies, `${field}.ipFamilies`, limits.MAX_FAMILIES, (f, path) =>
      oneOf(f, path, FAMILIES),
    ),
    exportedLabels: pairsToRecord(body.exportedLabels, `${field}.exportedLabels`, limits.MAX_LABEL_VALUE),
    exportedAnnotations: pairsToRecord(
      body.exportedAnnotations,
      `${field}.exportedAnnotations`,
      limits.MAX_ANNOTATION_VALUE,
    ),
  }
}

function importPort(port: wire.ServicePort, field: string): ImportPort {
  return {
    ...optional('name', optionalText(port.name, `${field}.name`)),
    protocol: oneOf(port.protocol, `${field}.protocol`, PROTOCOLS),
    port: portNumber(port.port, `${field}.port`),
    ...optional('appProtocol', optionalText(port.appProtocol, `${field}.appProtocol`)),
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
  }
}

function sliceFromWire(body: wire.EndpointSlice, field: string): EndpointSliceBody {
  return {
    kind: 'EndpointSlice',
    service: keyPart(body.service, `${field}.service`, 1),
    addressType: oneOf(body.addressType, `${field}.addressType`, FAMILIES),
    ports: list(body.ports, `${field}.ports`, limits.MAX_PORTS, slicePort),
    endpoints: list(body.endpoints, `${field}.endpoints`, limits.MAX_ENDPOINTS_PER_SLICE, sliceEndpoint),
  }
}

function slicePort(port: wire.SlicePort, field: string): EndpointPort {
  const protocol = port.protocol === undefined ? undefined : oneOf(port.protocol, `${field}.protocol`, PROTOCOLS)
  return {
    ...optional('name', optionalText(port.name, `${field}.name`)),
    ...optional('protocol', protocol),
    ...optional('port', port.port === undefined ? undefined : portNumber(port.port, `${field}.port`)),
    ...optional('appProtocol', optionalText(port.appProtocol, `${field}.appProtocol`)),
  }
}

function sliceEndpoint(endpoint: wire.SliceEndpoint, field: string): PublishedEndpoint {
  const conditions = endpoint.conditions
  const zones = texts(endpoint.zoneHints, `${field}.zoneHints`, MAX_ZONE_HINTS, limits.MAX_LABEL_VALUE)
  return {
    addresses: texts(endpoint.addresses, `${field}.addresses`, limits.MAX_ADDRESSES_PER_ENDPOINT, ADDRESS_TEXT),
    ...optional('hostname', optionalText(endpoint.hostname, `${field}.hostname`)),
    ...optional('nodeName', optionalText(endpoint.nodeName, `${field}.nodeName`)),
    ...optional('zone', optionalText(endpoint.zone, `${field}.zone`)),
    ...optional('pod', endpoint.pod === undefined ? undefined : text(endpoint.pod, `${field}.pod`, MAX_POD_KEY)),
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
      cluster: keyPart(body.cluster, `${field}.cluster`, 1),
      node: keyPart(body.node, `${field}.node`, 1),
      lane: integer(body.lane, `${field}.lane`, 0, 255),
      publicKey: wireguardKey(body.publicKey, `${field}.publicKey`),
      ...optional(
        'nextPublicKey',
        body.nextPublicKey === undefined ? undefined : wireguardKey(body.nextPublicKey, `${field}.nextPublicKey`),
      ),
      candidates: list(body.candidates, `${field}.candidates`, limits.MAX_CANDIDATES, (candidate, path) => ({
        kind: oneOf(candidate.kind, `${path}.kind`, ['private', 'public', 'observed', 'loadBalancer']),
        address: text(candidate.address, `${path}.address`, ADDRESS_TEXT, 1),
        port: portNumber(candidate.port, `${path}.port`),
      })),
      capabilities: texts(body.capabilities, `${field}.capabilities`, limits.MAX_CAPABILITIES, limits.MAX_LABEL_VALUE),
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
  }
}

function clusterFromWire(body: wire.Cluster, field: string): ClusterBody {
  return {
    kind: 'Cluster',
    spec: {
      id: keyPart(body.id, `${field}.id`, 1),
      index: integer(body.index, `${field}.index`, 0, 0xffff),
      podCIDRs: texts(body.podCidrs, `${field}.podCIDRs`, limits.MAX_CIDRS, ADDRESS_TEXT),
      serviceCIDRs: texts(body.serviceCidrs, `${field}.serviceCIDRs`, limits.MAX_CIDRS, ADDRESS_TEXT),
      globalCIDRs: texts(body.globalCidrs, `${field}.globalCIDRs`, limits.MAX_CIDRS, ADDRESS_TEXT),
      labels: pairsToRecord(body.labels, `${field}.labels`, limits.MAX_LABEL_VALUE),
    },
  }
}

function clusterSetIpFromWire(body: wire.ClusterSetIP, field: string): ClusterSetIpBody {
  return { kind: 'ClusterSetIP', ips: texts(body.ips, `${field}.ips`, limits.MAX_IPS, ADDRESS_TEXT) }
}

function optionalText(value: string | undefined, field: string): string | undefined {
  return value === undefined ? undefined : text(value, field, limits.MAX_NAME)
}

function portNumber(value: number, field: string): number {
  return integer(value, field, 1, 65_535)
}

/** Checks a WireGuard public key: 32 bytes in base64, as `wg` prints it. */
function wireguardKey(value: string, field: string): string {
  if (!/^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/.test(value)) {
    throw new CodecError(field, 'expected a WireGuard public key: 32 bytes in base64')
  }
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
