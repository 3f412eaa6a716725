/**
 * What a member reports about itself to the others, once per member and not per object. It lists what the member does
 * not import, so that exporters see it; everything else is imported. It also says how many connections its pods have
 * with other clusters, so that a joining cluster knows what would break.
 */
import { isDnsLabel } from './ids.ts'
import type { OpenConnections } from './kinds/kinds.ts'
import type { ReasonCode } from './reasons/reasons.ts'
import { MAX_OPEN_CONNECTIONS } from './values/values.ts'

/**
 * The number of connections between a cluster's pods and pods of other clusters: those that break when the cluster gets
 * global addresses. Only IPv4 counts, since IPv6 is never translated. Each node counts those of its own pods, and the
 * broker gives the sum to a cluster that joins. It is sent again only after a large change, so readers say "about".
 * Pure.
 */

export type { OpenConnections }

/** Returns what is wrong with a reported figure, with the name of the field; undefined if nothing is. */
export function openConnectionsProblem({
  count,
  atLeast,
}: Readonly<Record<keyof OpenConnections, unknown>>): string | undefined {
  if (typeof count !== 'number' || !Number.isInteger(count) || count < 0 || count > MAX_OPEN_CONNECTIONS) {
    return `count ${String(count).slice(0, 40)}: expected a whole number from 0 to ${MAX_OPEN_CONNECTIONS}`
  }
  return typeof atLeast === 'boolean' ? undefined : 'atLeast: expected true or false'
}

/** A change of at most this many connections, or of at most a tenth, is sent only after STALE_MS. */
const SMALL_CHANGE = 10
const STALE_MS = 600_000

/**
 * Whether a figure is to be sent again. `ageMs` is the time since the last one was sent. Undefined if a figure is not
 * known.
 */
export function isWorthReporting(
  reported: OpenConnections | undefined,
  now: OpenConnections | undefined,
  ageMs: number,
): boolean {
  if (reported === undefined || now === undefined) return reported !== now
  if (reported.atLeast !== now.atLeast || (reported.count === 0) !== (now.count === 0)) return true
  const change = Math.abs(now.count - reported.count)
  return change > Math.max(SMALL_CHANGE, reported.count / 10) || (change > 0 && ageMs >= STALE_MS)
}

/** Formats as `about 12 open connections`, for the middle of a sentence. */
export function openConnectionsText({ count, atLeast }: OpenConnections): string {
  const noun = count === 1 ? 'open connection' : 'open connections'
  if (atLeast) return `at least ${count} ${noun}`
  return count === 0 ? `no ${noun}` : `about ${count} ${noun}`
}

interface BrokenConnections {
  readonly cluster: string
  readonly openConnections?: OpenConnections
}

/**
 * The effect of renumbering on open connections, for each member: `About 12 open connections with pods of milano
 * break`.
 */
export function brokenConnectionsText(members: readonly BrokenConnections[], verb: 'break' | 'broke'): string {
  const known = members.flatMap(({ cluster, openConnections: open }) => {
    return open === undefined ? [] : [`${openConnectionsText(open)} with pods of ${cluster}`]
  })
  const unknown = members.flatMap(({ cluster, openConnections }) => (openConnections === undefined ? [cluster] : []))
  const parts = [
    ...(known.length === 0 ? [] : [`${listText(known)} ${verb}`]),
    ...(unknown.length === 0
      ? []
      : [`open connections with pods of ${listText(unknown)} ${verb}, how many is not known`]),
  ]
  const text = parts.join(', and ')
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}`
}

const MAX_NAMED = 10

interface RenumberedMember extends BrokenConnections {
  /** The global CIDRs that it gets, one for each pod CIDR. */
  readonly globalCIDRs: readonly string[]
}

/** `milano (244.0.0.0/16) and tokyo (244.1.0.0/16) get global addresses by this join: …` */
export function renumberedText(members: readonly RenumberedMember[], verb: 'get' | 'got'): string {
  const listed = members.slice(0, MAX_NAMED)
  const named = listed.map(({ cluster, globalCIDRs }) => `${cluster} (${globalCIDRs.join(', ')})`)
  const more = members.length > MAX_NAMED ? ` and ${members.length - MAX_NAMED} more` : ''
  return (
    `other members ${verb} global addresses because pods or services of this cluster have the same addresses: ` +
    `${named.join(', ')}${more}. ${brokenConnectionsText(listed, verb === 'get' ? 'break' : 'broke')}; names lead to the new ` +
    `addresses within seconds`
  )
}

function listText(items: readonly string[]): string {
  return items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} and ${items.at(-1) ?? ''}`
}

/** Why a member does not import a service. These names are part of the protocol. */
export const NOT_IMPORTED_REASONS = [
  'NamespaceMissing',
  'NamespaceNotAllowed',
  'NameTaken',
  'IPFamilyNotSupported',
  'ImportRefused',
  'ExportRefused',
  'ClusterNotUsable',
] as const satisfies readonly ReasonCode[]
export type NotImportedReason = (typeof NOT_IMPORTED_REASONS)[number]

/** '' is a wildcard: a namespace without a name means all services in it, a cluster alone means all that it exports. */
export interface NotImported {
  readonly reason: NotImportedReason
  readonly namespace: string
  readonly name: string
  /** The exporter. */
  readonly cluster: string
}

/** The most findings that one member lists; it only counts the rest. */
export const MAX_NOT_IMPORTED = 1000

/** Severities of a problem, the worst first. These names are part of the protocol. */
export const PROBLEM_SEVERITIES = ['down', 'degraded', 'notice'] as const
export type ProblemSeverity = (typeof PROBLEM_SEVERITIES)[number]

export interface ReportedProblem {
  /** A ReasonCode, possibly of a later release. */
  readonly code: string
  readonly severity: ProblemSeverity
  /** The number of subjects with this problem, at least 1. */
  readonly count: number
}

/** The state of a member, for operators of the broker. Other members do not use it. */
export interface MemberReport {
  /** Versions of its components, sorted, without duplicates, at most MAX_REPORTED_VERSIONS. */
  readonly versions: readonly string[]
  /** Connections of its gateways. */
  readonly lanes: { readonly up: number; readonly of: number }
  readonly exports: { readonly count: number; readonly failed: number }
  /** The worst first, each code once, at most MAX_REPORTED_PROBLEMS. */
  readonly problems: readonly ReportedProblem[]
}

export const MAX_REPORTED_VERSIONS = 8
export const MAX_REPORTED_PROBLEMS = 32
/** Limit of a version or a code, in characters. */
export const MAX_REPORTED_TEXT = 63
const MAX_COUNT = 2 ** 31 - 1
const VERSION = /^[0-9A-Za-z][0-9A-Za-z.+_-]*$/
const CODE = /^[A-Z][A-Za-z0-9]*$/

export interface MemberStatus {
  /** Sorted, without duplicates, at most MAX_NOT_IMPORTED. */
  readonly notImported: readonly NotImported[]
  /** The number of findings that are not in the list. */
  readonly leftOut: number
  /** Absent if it is not known. */
  readonly openConnections?: OpenConnections
  /** Absent from an earlier release. */
  readonly report?: MemberReport
}

/** Returns what is wrong with a report, as field and problem; undefined if nothing is. */
export function reportProblem(report: MemberReport): { readonly field: string; readonly problem: string } | undefined {
  const { versions, lanes, exports, problems } = report
  for (const [field, list, most] of [
    ['versions', versions, MAX_REPORTED_VERSIONS],
    ['problems', problems, MAX_REPORTED_PROBLEMS],
  ] as const) {
    if (list.length > most) return { field, problem: `${list.length} entries: expected at most ${most}` }
  }
  const texts = [
    ...versions.map((text, i) => ({ field: `versions[${i}]`, text, form: VERSION, expected: 'a version' })),
    ...problems.map(({ code }, i) => ({ field: `problems[${i}].code`, text: code, form: CODE, expected: 'a code' })),
  ]
  const text = texts.find((one) => one.text.length > MAX_REPORTED_TEXT || !one.form.test(one.text))
  if (text !== undefined) {
    const expected = `expected ${text.expected} of at most ${MAX_REPORTED_TEXT} characters`
    return { field: text.field, problem: `${JSON.stringify(text.text.slice(0, 100))}: ${expected}` }
  }
  const twice = problems.findIndex(({ code }, i) => problems.findIndex((one) => one.code === code) !== i)
  if (twice >= 0) return { field: `problems[${twice}].code`, problem: 'comes twice' }
  const numbers: (readonly [field: string, value: number, min: number, max: number])[] = [
    ['lanes.of', lanes.of, 0, MAX_COUNT],
    ['lanes.up', lanes.up, 0, lanes.of],
    ['exports.count', exports.count, 0, MAX_COUNT],
    ['exports.failed', exports.failed, 0, exports.count],
    ...problems.map(({ count }, i) => [`problems[${i}].count`, count, 1, MAX_COUNT] as const),
  ]
  const wrong = numbers.find(([, value, min, max]) => !Number.isInteger(value) || value < min || value > max)
  if (wrong === undefined) return undefined
  const [field, value, min, max] = wrong
  return { field, problem: `${value}: expected a whole number from ${min} to ${max}` }
}

/** Returns what is wrong with a finding, as field and problem; undefined if nothing is. */
export function findingProblem(one: NotImported): { readonly field: string; readonly problem: string } | undefined {
  const field = (['namespace', 'name', 'cluster'] as const).find((part) => one[part] !== '' && !isDnsLabel(one[part]))
  if (field !== undefined) {
    return { field, problem: `${JSON.stringify(one[field].slice(0, 100))}: expected an RFC 1123 label, or nothing` }
  }
  if (one.namespace === '' && one.name !== '') return { field: 'namespace', problem: 'missing beside a name' }
  if (one.namespace === '' && one.cluster === '') return { field: 'namespace', problem: 'missing without a cluster' }
  if (!NOT_IMPORTED_REASONS.includes(one.reason)) {
    const expected = `expected one of ${NOT_IMPORTED_REASONS.join(', ')}`
    return { field: 'reason', problem: `${JSON.stringify(one.reason.slice(0, 100))}: ${expected}` }
  }
  return undefined
}

/** Returns what is wrong with a status, as field and problem; undefined if nothing is. */
export function statusProblem({
  notImported,
  leftOut,
  openConnections,
  report,
}: MemberStatus): { readonly field: string; readonly problem: string } | undefined {
  if (notImported.length > MAX_NOT_IMPORTED) {
    const problem = `has ${notImported.length} entries: expected 0 to ${MAX_NOT_IMPORTED}`
    return { field: 'notImported', problem }
  }
  for (const [i, one] of notImported.entries()) {
    const wrong = findingProblem(one)
    if (wrong !== undefined) return { field: `notImported[${i}].${wrong.field}`, problem: wrong.problem }
  }
  if (!Number.isSafeInteger(leftOut) || leftOut < 0) {
    return { field: 'leftOut', problem: `${leftOut}: expected a whole number from 0` }
  }
  const open = openConnections === undefined ? undefined : openConnectionsProblem(openConnections)
  if (open !== undefined) return { field: 'openConnections', problem: open }
  const wrong = report && reportProblem(report)
  return wrong && { field: `report.${wrong.field}`, problem: wrong.problem }
}
