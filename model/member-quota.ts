/**
 * How much of a broker one member may use, and whether a change fits. Broker and member apply the same rules: the
 * broker enforces them, and the member offers nothing that exceeds them. Pure.
 */

/** Limits of one member. */
export interface MemberQuota {
  /** Records that it publishes. */
  readonly records: number
  /** Size of the record bodies as JSON. In the broker's memory they take up to ten times as much. */
  readonly bytes: number
  /**
   * Sustained rate of changes per second; a burst may be as large as `records`. Applies to each replica of the broker.
   */
  readonly changes: number
  /** Concurrent streams: one publishes, the others watch. Applies to each replica of the broker. */
  readonly streams: number
}

export type QuotaField = keyof MemberQuota

/** The quantities that are stored. The other limits are rates or concurrent counts. */
export interface QuotaUse {
  readonly records: number
  readonly bytes: number
}

/** What a broker reports to a member about its quota. */
export interface QuotaReport {
  readonly limit: MemberQuota
  readonly used: QuotaUse
  /** Whether the broker delays the member's changes. */
  readonly isSlowed: boolean
}

/** The reasons for these figures are in docs/decisions/0063-quotas-of-members.md. */
export const DEFAULT_MEMBER_QUOTA: MemberQuota = {
  records: 50_000,
  bytes: 16 * 1024 * 1024,
  changes: 100,
  streams: 10,
}

/** Valid values. A member needs two streams; the transport allows sixty. */
export const QUOTA_BOUNDS: Readonly<Record<QuotaField, { readonly min: number; readonly max: number }>> = {
  records: { min: 0, max: 200_000 },
  bytes: { min: 0, max: 4 * 1024 ** 3 },
  changes: { min: 1, max: 100_000 },
  streams: { min: 2, max: 60 },
}

export const QUOTA_FIELDS = Object.keys(QUOTA_BOUNDS) as readonly QuotaField[]

/** Reasons for refusals that end by themselves when there is room. */
export type QuotaReason = 'QuotaRecords' | 'QuotaBytes'

export function isQuotaReason(reason: string | undefined): reason is QuotaReason {
  return reason === 'QuotaRecords' || reason === 'QuotaBytes'
}

/** The least margin above a quota, however small the quota is. */
const LEAST_SPARE: QuotaUse = { records: 100, bytes: 1024 * 1024 }

/**
 * The most that a member may store with its existing exports: a quarter above the quota. So an exported service keeps
 * all its endpoints, however many they become, and a lowered quota removes nothing.
 */
export function ceilingOf({ records, bytes }: MemberQuota): QuotaUse {
  return {
    records: records + Math.max(LEAST_SPARE.records, Math.floor(records / 4)),
    bytes: bytes + Math.max(LEAST_SPARE.bytes, Math.floor(bytes / 4)),
  }
}

/**
 * Returns why `more` does not fit; undefined when it does. `isHeld` means a change of an existing record, or an
 * endpoint slice of an existing service.
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

/** A message for operators, to follow the name of the field. */
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

/** Size of a record's body, as the quota counts it. */
export function bodyBytes(body: object): number {
  return Buffer.byteLength(JSON.stringify(body))
}

/** Changes that may arrive in one burst: a member can always publish its whole set. */
export function changeBurst({ records, changes }: MemberQuota): number {
  return Math.max(records, 10 * changes)
}
