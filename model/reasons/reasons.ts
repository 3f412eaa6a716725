/**
 * Every reason with a stable name: in conditions, events, metrics, logs and refusals. docs/troubleshooting.md is
 * generated from it. A name never changes its meaning; the parts are sorted by subject.
 */
import { ACCESS_REASONS } from './access-reasons.ts'
import { AUTHORITY_REASONS } from './authority-reasons.ts'
import { HEALTH_REASONS, PROBE_REASONS } from './health-reasons.ts'
import { KERNEL_REASONS } from './kernel-reasons.ts'
import { LANE_REASONS } from './lane-reasons.ts'
import { MEMBER_REASONS } from './member-reasons.ts'
import type { ReasonRow, RefusalCode } from './reason-row.ts'
import { RECORD_REASONS } from './record-reasons.ts'
import { SERVICE_REASONS } from './service-reasons.ts'
import { TRAFFIC_REASONS } from './traffic-reasons.ts'
import { VERIFY_REASONS } from './verify-reasons.ts'

export type { RefusalCode } from './reason-row.ts'

/** The parts of the table, by their heading in the document. */
export const REASON_PARTS = {
  'Exported and imported services': SERVICE_REASONS,
  'Where calls go': TRAFFIC_REASONS,
  'Tokens, certificates and memberships': MEMBER_REASONS,
  'The certificate authority': AUTHORITY_REASONS,
  'Addresses and records': RECORD_REASONS,
  'Lanes, gateways and clusters': LANE_REASONS,
  'Packets and the kernel': KERNEL_REASONS,
  'API servers and the store': ACCESS_REASONS,
  'A member as a whole': HEALTH_REASONS,
  'Found by a closer look': PROBE_REASONS,
  'Found by verify': VERIFY_REASONS,
} as const

const REASONS = {
  ...SERVICE_REASONS,
  ...TRAFFIC_REASONS,
  ...MEMBER_REASONS,
  ...AUTHORITY_REASONS,
  ...RECORD_REASONS,
  ...LANE_REASONS,
  ...KERNEL_REASONS,
  ...ACCESS_REASONS,
  ...HEALTH_REASONS,
  ...PROBE_REASONS,
  ...VERIFY_REASONS,
} as const

export type ReasonCode = keyof typeof REASONS

/** The reasons of refusals by a broker, with a gRPC status. */
export type RefusalReason = {
  [Code in ReasonCode]: (typeof REASONS)[Code] extends { readonly status: RefusalCode } ? Code : never
}[ReasonCode]

/**
 * Several reasons that hold at once, in one condition (KEP-1645, condition Conflict): joinReasons(). The first is no
 * ReasonCode in the type, because the compiler gives up where it would compare a form for each reason with each reason.
 */
export type JoinedReasons = `${string},${string}`

/** The possible reasons of a condition. */
export type ConditionReason = ReasonCode | JoinedReasons

export function joinReasons(reasons: readonly [ReasonCode, ...ReasonCode[]]): ConditionReason {
  const [first, ...more] = reasons
  const text: string = first
  return more.length === 0 ? first : `${text},${more.join(',')}`
}

/** Returns the first of several joined reasons. */
export function firstReason(reason: ConditionReason): ReasonCode {
  return reason.split(',')[0] as ReasonCode
}

/** Whether a code is one of several joined reasons. */
export function hasReason(reason: ConditionReason, code: ReasonCode): boolean {
  return reason.split(',').includes(code)
}

export function reasonRow(code: ReasonCode): ReasonRow {
  return REASONS[code]
}

/** Returns the gRPC status of a refusal for this reason. */
export function refusalCode(reason: RefusalReason): RefusalCode {
  return REASONS[reason].status
}

/** Returns the text if it is a reason for which this release's broker refuses; otherwise undefined. */
export function knownRefusal(text: string | undefined): RefusalReason | undefined {
  const code = knownReason(text)
  return code !== undefined && reasonRow(code).status !== undefined ? (code as RefusalReason) : undefined
}

/** Returns the text if it is in this release's table; otherwise undefined. */
export function knownReason(text: string | undefined): ReasonCode | undefined {
  return text !== undefined && Object.hasOwn(REASONS, text) ? (text as ReasonCode) : undefined
}

// The result of every check that finds a problem.

export interface Problem {
  readonly reason: ReasonCode
  /** For operators. */
  readonly message: string
}

export function problem(reason: ReasonCode, message: string): Problem {
  return { reason, message }
}

/** Formats a problem as plans and the `failure` of a status show it. */
export function problemText({ reason, message }: Problem): string {
  return `${reason}: ${message}`
}
