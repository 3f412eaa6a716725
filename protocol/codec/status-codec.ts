/** What a member reports about itself, between the wire and the model. */
import {
  MAX_NOT_IMPORTED,
  MAX_REPORTED_PROBLEMS,
  MAX_REPORTED_TEXT,
  MAX_REPORTED_VERSIONS,
  type MemberReport,
  type MemberStatus,
  NOT_IMPORTED_REASONS,
  type NotImported,
  PROBLEM_SEVERITIES,
  type ReportedProblem,
} from '../../model/member-status.ts'
import type { OpenConnections } from '../../model/open-connections.ts'
import { count, keyPart, list, optional, present, text, texts } from './codec-checks.ts'
import type * as wire from '../gen/broker.ts'
import { MAX_NAME } from '../limits.ts'

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

/** Throws CodecError. Findings with a reason of a later version are counted with those that were left out. */
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

/** Only the bounds: what the texts and numbers may be is admission's matter. */
function reportFromWire(report: wire.MemberReport, field: string): MemberReport {
  return {
    versions: texts(report.versions, `${field}.versions`, MAX_REPORTED_VERSIONS, MAX_REPORTED_TEXT),
    lanes: { up: report.lanesUp, of: report.lanes },
    exports: { count: report.exports, failed: report.exportsFailed },
    problems: list(report.problems, `${field}.problems`, MAX_REPORTED_PROBLEMS, problemFromWire),
  }
}

/** A severity that a later release may have counts as the middle one. */
function problemFromWire(one: wire.MemberReport_Problem, field: string): ReportedProblem {
  const severity = text(one.severity, `${field}.severity`, MAX_REPORTED_TEXT)
  return {
    code: text(one.code, `${field}.code`, MAX_REPORTED_TEXT),
    severity: PROBLEM_SEVERITIES.find((known) => known === severity) ?? 'degraded',
    count: one.count,
  }
}

/** Without what a later release may add. What the number may be is admission's matter. */
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
