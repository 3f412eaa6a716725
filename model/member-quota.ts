/**
 * How much of a broker one member may have, and what of it fits. Broker and member reckon by the same rules: the broker
 * says what fits, the member offers nothing that cannot. Pure.
 */

/** Limits of one member. */
export interface MemberQuota {
  /** That it publishes. */
  readonly records: number
  /** Of their contents as JSON: in the broker's memory it is up to ten times as much. */
  readonly bytes: number
  /** Changes a second in the long run; as many as it may have records come at once. At each replica of the broker. */
  readonly changes: number
  /** Streams open at once: one that publishes, the others watch. At each replica of the broker. */
  readonly streams: number
}

export type QuotaField = keyof MemberQuota

/** Of what is held: the others are used up by time. */
export interface QuotaUse {
  readonly records: number
  readonly bytes: number
}

/** What a broker tells a member of it. */
export interface QuotaReport {
  readonly limit: MemberQuota
  readonly used: QuotaUse
  /** Its changes are taken more slowly than they come. */
  readonly isSlowed: boolean
}

/** Why these figures: docs/decisions/0063-quotas-of-members.md. */
export const DEFAULT_MEMBER_QUOTA: MemberQuota = {
  records: 50_000,
  bytes: 16 * 1024 * 1024,
  changes: 100,
  streams: 10,
}

/** What can be asked for. Two streams are what a member needs; the transport gives it sixty. */
export const QUOTA_BOUNDS: Readonly<Record<QuotaField, { readonly min: number; readonly max: number }>> = {
  records: { min: 0, max: 200_000 },
  bytes: { min: 0, max: 4 * 1024 ** 3 },
  changes: { min: 1, max: 100_000 },
  streams: { min: 2, max: 60 },
}

export const QUOTA_FIELDS = Object.keys(QUOTA_BOUNDS) as readonly QuotaField[]

/** Reasons of refusals that end by themselves as soon as there is room. */
export type QuotaReason = 'QuotaRecords' | 'QuotaBytes'

export function isQuotaReason(reason: string | undefined): reason is QuotaReason {
  return reason === 'QuotaRecords' || reason === 'QuotaBytes'
}

/** At least this much more, however small the quota is. */
const LEAST_SPARE: QuotaUse = { records: 100, bytes: 1024 * 1024 }

/**
 * How far what is held may grow: a quarter above the quota. So a service that is in keeps its endpoints, however many
 * they become, and a quota that was lowered takes nothing away.
 */
export function ceilingOf({ records, bytes }: MemberQuota): QuotaUse {
  return {
    records: records + Math.max(LEAST_SPARE.records, Math.floor(records / 4)),
    bytes: bytes + Math.max(LEAST_SPARE.bytes, Math.floor(bytes / 4)),
  }
}

/**
 * Why `more` does not fit; undefined when it does. `isHeld`: it is a change of a record that is there, or an endpoint
 * slice of a service that is.
 */
export function quotaExcess(
  { limit, used }: Pick<QuotaReport, 'limit' | 'used'>,
  more: QuotaUse,
  isHeld: boolean,
): QuotaReason | undefined {
  const most = isHeld ? ceilingOf(limit) : limit
  if (more.records > 0 && used.records + more.records > most.records) return 'QuotaRecords'
  if (more.bytes > 0 && used.bytes + more.bytes > most.bytes) return 'QuotaBytes'
  return undefined
}

export const QUOTA_FIELD: Readonly<Record<QuotaReason, 'records' | 'bytes'>> = {
  QuotaRecords: 'records',
  QuotaBytes: 'bytes',
}

/** For people; reads on after the field. */
export function quotaProblem(
  reason: QuotaReason,
  cluster: string,
  { limit, used }: Pick<QuotaReport, 'limit' | 'used'>,
): string {
  const field = QUOTA_FIELD[reason]
  const unit = field === 'records' ? 'records' : 'bytes of records'
  return (
    `the broker holds ${used[field]} ${unit} of cluster "${cluster}", and its quota is ${limit[field]}: ` +
    `withdraw exports, or ask for more at the broker: sealane cluster quota ${cluster} --${field} N`
  )
}

/** Of a record's body, as the quota counts them. */
export function bodyBytes(body: object): number {
  return Buffer.byteLength(JSON.stringify(body))
}

/** Changes that may come at once: a member can always publish its whole set. */
export function changeBurst({ records, changes }: MemberQuota): number {
  return Math.max(records, 10 * changes)
}
