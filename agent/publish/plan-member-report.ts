/**
 * Plans the report of this cluster's state for operators of the broker: versions, lanes, exports, problems by code.
 * Pure.
 */
import {
  CONDITION_CLUSTER_DNS,
  CONDITION_CONNECTED,
  CONDITION_IN_CONTACT,
  CONDITION_NODES_ANSWER,
  CONDITION_POD_ADDRESSES,
  CONDITION_READY,
  type Cluster,
  type ClusterSpec,
  type Condition,
  type Gateway,
  MAX_NOT_IMPORTED,
  MAX_REPORTED_PROBLEMS,
  MAX_REPORTED_VERSIONS,
  type MemberReport,
  type MemberStatus,
  type NotImported,
  type NamespaceLists,
  type NotImportedReason,
  PROBLEM_SEVERITIES,
  type ProblemSeverity,
  type ReportedProblem,
  type RouteAgent,
  type ServiceKey,
  findCondition,
  findingProblem,
  excludedNamespace,
  isDnsLabel,
  reportProblem,
} from '../../model/model.ts'
import { isTakenAsSilent } from '../../model/lanes/lanes.ts'
import type { ReasonCode } from '../../model/reasons/reasons.ts'
import type { ConflictFinding } from '../../model/services/services.ts'
import type { PlannedExport } from '../export/export.ts'
import type { ClustersetView } from '../import/import.ts'

const CUT_OFF: ReasonCode = 'NodesCutOff'
const AWAITED: ReasonCode = 'FarGatewayAwaited'

export interface MemberReportWorld {
  /** Id of this cluster. */
  readonly own: string
  /** The version of the agent. */
  readonly version: string
  readonly gateways: readonly Gateway[]
  readonly routeAgents: readonly RouteAgent[]
  /** Nodes whose routeagent no longer writes: what it has said is not of now. */
  readonly silent: ReadonlySet<string>
  readonly clusters: readonly Cluster[]
  readonly exports: ReadonlyMap<ServiceKey, Pick<PlannedExport, 'valid'>>
  /** Conflicts of this cluster's own exports. */
  readonly conflicts: ReadonlyMap<ServiceKey, ConflictFinding>
  readonly notImported: MemberStatus['notImported']
}

/** Leaves out numbers that change with every packet, so that a new report is sent only when a state changes. */
export function planMemberReport(world: MemberReportWorld): MemberReport {
  // What a gateway wrote before it became silent says nothing about its links now.
  const connections = world.gateways.flatMap((gateway) =>
    (gateway.status?.connections ?? []).map(({ state }) => (isTakenAsSilent(gateway) ? 'unknown' : state)),
  )
  const failed = [...world.exports.values()].filter(({ valid }) => valid.status === 'False')
  return {
    versions: versionsOf(world),
    lanes: { up: connections.filter((state) => state === 'up').length, of: connections.length },
    exports: { count: world.exports.size, failed: failed.length },
    problems: problemsOf(world),
  }
}

function versionsOf({ version, gateways, routeAgents }: MemberReportWorld): string[] {
  const all = [version, ...[...gateways, ...routeAgents].flatMap(({ status }) => status?.version ?? [])]
  return [...new Set(all)]
    .filter((one) => isSendable({ versions: [one] }))
    .sort()
    .slice(0, MAX_REPORTED_VERSIONS)
}

function problemsOf(world: MemberReportWorld): ReportedProblem[] {
  const found = new Map<string, { severity: ProblemSeverity; count: number }>()
  const add = (severity: ProblemSeverity, reasons: string): void => {
    for (const code of reasons.split(',')) {
      const before = found.get(code)
      const worst = PROBLEM_SEVERITIES.find((one) => one === before?.severity || one === severity) ?? severity
      found.set(code, { severity: worst, count: (before?.count ?? 0) + 1 })
    }
  }
  const unlessTrue = (severity: ProblemSeverity, conditions: readonly Condition[] | undefined, type: string): void => {
    const condition = findCondition(conditions, type)
    if (condition !== undefined && condition.status !== 'True') add(severity, condition.reason)
  }
  for (const { status, metadata } of world.clusters) {
    if (metadata.name === world.own) {
      for (const type of [CONDITION_CLUSTER_DNS, CONDITION_POD_ADDRESSES]) {
        unlessTrue('degraded', status?.conditions, type)
      }
    } else {
      // A cluster that has no gateway yet is not a failure.
      const isAwaited = findCondition(status?.conditions, CONDITION_CONNECTED)?.reason === AWAITED
      unlessTrue(isAwaited ? 'notice' : 'down', status?.conditions, CONDITION_CONNECTED)
      unlessTrue('notice', status?.conditions, CONDITION_IN_CONTACT)
    }
  }
  const failure: ReasonCode = 'RoundFailed'
  for (const { status } of world.gateways) {
    unlessTrue('degraded', status?.conditions, CONDITION_READY)
    if (status?.failure !== undefined) add('degraded', failure)
  }
  const noWord: ReasonCode = 'RouteAgentSilent'
  for (const { status, metadata } of world.routeAgents) {
    if (world.silent.has(metadata.name)) {
      add('degraded', noWord)
      continue
    }
    const answer = findCondition(status?.conditions, CONDITION_NODES_ANSWER)
    unlessTrue(answer?.reason === CUT_OFF ? 'down' : 'degraded', status?.conditions, CONDITION_NODES_ANSWER)
    if (status?.failure !== undefined) add('degraded', failure)
  }
  for (const { valid } of world.exports.values()) if (valid.status === 'False') add('degraded', valid.reason)
  for (const { reasons } of world.conflicts.values()) for (const reason of reasons) add('notice', reason)
  for (const { reason } of world.notImported) add('notice', reason)
  return [...found]
    .map(([code, { severity, count }]) => ({ code, severity, count }))
    .filter((one) => isSendable({ problems: [one] }))
    .sort((a, b) => rank(a) - rank(b) || (a.code < b.code ? -1 : 1))
    .slice(0, MAX_REPORTED_PROBLEMS)
}

function rank({ severity }: ReportedProblem): number {
  return PROBLEM_SEVERITIES.indexOf(severity)
}

/** Whether the broker accepts this part of a report. Local objects may have any content. */
function isSendable(part: Partial<MemberReport>): boolean {
  const nothing = { versions: [], lanes: { up: 0, of: 0 }, exports: { count: 0, failed: 0 }, problems: [] }
  return reportProblem({ ...nothing, ...part }) === undefined
}

// Plans what this cluster reports to the other members: which of their exports it does not import, and why. Pure.

interface MemberStatusWorld {
  /** Id of this cluster. */
  readonly own: string
  readonly view: Pick<ClustersetView, 'services' | 'refusedExports'>
  /** Namespaces in which any cluster exports a service, by the broker. If undefined, the view has all of them. */
  readonly exported: ReadonlySet<string> | undefined
  /** Namespaces that exist here and are not terminating. */
  readonly namespaces: ReadonlySet<string>
  readonly lists: NamespaceLists
  /** Clusters whose addresses can be used here. */
  readonly clusters: ReadonlyMap<string, ClusterSpec>
  /** All clusters of the broker's view, usable or not. */
  readonly members: ReadonlyMap<string, ClusterSpec>
  /** Why services of existing namespaces are not imported. */
  readonly problems: ReadonlyMap<ServiceKey, NotImportedReason>
}

/** Limits the bytes of all findings, well below the protocol's limit. */
const MAX_BYTES = 48 * 1024
/** The bytes of one finding apart from its texts. */
const FRAME_BYTES = 16

/** Findings that concern more than one service come first, so that a limit drops those of single services. */
export function planMemberStatus(world: MemberStatusWorld): MemberStatus {
  const findings = new Map<string, NotImported>()
  const add = (reason: NotImportedReason, where: Partial<Omit<NotImported, 'reason'>>): void => {
    const one = { reason, namespace: '', name: '', cluster: '', ...where }
    // Names from other members may be malformed and cannot be sent then.
    if (findingProblem(one) === undefined) findings.set(sortKey(one), one)
  }
  for (const [key, { exports }] of world.view.services) {
    const others = exports.filter((record) => record.key.cluster !== world.own)
    if (others.length === 0) continue
    const [namespace = '', name = ''] = key.split('/')
    if (!world.namespaces.has(namespace)) add('NamespaceMissing', { namespace })
    else {
      const reason = world.problems.get(key)
      if (reason !== undefined) add(reason, { namespace, name })
    }
    for (const { cluster } of others.map((record) => record.key)) {
      if (world.members.has(cluster) && !world.clusters.has(cluster)) add('ClusterNotUsable', { cluster })
    }
  }
  const isForbidden = (namespace: string): boolean =>
    isDnsLabel(namespace) && excludedNamespace(namespace, world.lists) !== undefined
  for (const namespace of world.exported ?? []) {
    if (!world.namespaces.has(namespace))
      add(isForbidden(namespace) ? 'NamespaceNotAllowed' : 'NamespaceMissing', { namespace })
  }
  for (const { namespace, name, cluster } of world.view.refusedExports) {
    if (cluster === world.own) continue
    if (isForbidden(namespace)) add('NamespaceNotAllowed', { namespace })
    else add('ExportRefused', { namespace, name, cluster })
  }
  const sorted = [...findings].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one)
  const kept = withinBounds(sorted)
  return { notImported: kept, leftOut: sorted.length - kept.length }
}

function withinBounds(findings: readonly NotImported[]): NotImported[] {
  let bytes = 0
  return findings.slice(0, MAX_NOT_IMPORTED).filter(({ reason, namespace, name, cluster }) => {
    bytes += FRAME_BYTES + reason.length + namespace.length + name.length + cluster.length
    return bytes <= MAX_BYTES
  })
}

function sortKey({ reason, namespace, name, cluster }: NotImported): string {
  return `${name === '' ? 0 : 1} ${namespace}/${name} ${cluster} ${reason}`
}
