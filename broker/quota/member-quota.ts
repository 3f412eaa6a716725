/** The quota of each member, as the log has it: every replica reads the same, and a restart keeps it. */
import { parseClusterId } from '../../model/ids.ts'
import {
  type MemberQuota,
  QUOTA_BOUNDS,
  QUOTA_FIELDS,
  type QuotaField,
  type QuotaReport,
  type QuotaUse,
} from '../../model/quota/member-quota.ts'
import { RefusedError } from '../../protocol/broker-api.ts'
import { quote } from '../admission/admission-checks.ts'
import type { LogView, Transaction } from '../log/record-log.ts'
import { statusOf } from '../records/status-records.ts'
import { clusterRecordKey } from '../records/cluster-records.ts'
import { SETTINGS_KEY, isLive } from '../state/state.ts'

/** The member's own limits over those of all; `fallback` where the store has none, as of an earlier release. */
export function quotaOf(view: LogView, cluster: string, fallback: MemberQuota): MemberQuota {
  const ofAll = view.get('settings', SETTINGS_KEY)?.quota ?? fallback
  return { ...ofAll, ...view.get('member', cluster)?.quota }
}

/** Of what the member publishes. What the broker writes of it is not counted: its Cluster record and its status. */
export function quotaUse(view: LogView, cluster: string): QuotaUse {
  const hasOwn = view.get('record', clusterRecordKey(cluster)) !== undefined
  const brokers = Number(hasOwn) + Number(statusOf(view, cluster) !== undefined)
  return { records: view.count('record', cluster) - brokers, bytes: view.recordBytes(cluster) }
}

export function quotaAndUse(
  view: LogView,
  cluster: string,
  fallback: MemberQuota,
): Pick<QuotaReport, 'limit' | 'used'> {
  return { limit: quotaOf(view, cluster, fallback), used: quotaUse(view, cluster) }
}

/** `default`: as for all members again. What is not named stays. */
export type QuotaChange = { readonly [field in QuotaField]?: number | 'default' }

export interface QuotaInit {
  /** As said by a person. */
  readonly cluster: string
  readonly change: QuotaChange
}

/**
 * Changes the limits of one member, also while it is away. Throws RefusedError when there is no such member, or a value
 * is out of bounds; InvalidNameError when the id is none. False: that was so already.
 */
export function changeQuota(tx: Transaction, { cluster, change }: QuotaInit): boolean {
  const id = parseClusterId(cluster, 'cluster')
  const row = tx.get('member', id)
  if (!isLive(row))
    throw new RefusedError('MemberUnknown', 'cluster', `cluster ${quote(id)} is not a member: sealane cluster list`)
  const { quota: before = {}, ...rest } = row
  const fields = QUOTA_FIELDS.flatMap((field) => {
    const value = change[field] ?? before[field]
    return value === undefined || value === 'default' ? [] : [[field, checkQuotaValue(field, value)] as const]
  })
  const quota: Partial<MemberQuota> = Object.fromEntries(fields)
  if (QUOTA_FIELDS.every((field) => quota[field] === before[field])) return false
  tx.put('member', id, fields.length === 0 ? rest : { ...rest, quota })
  return true
}

/** Gives the value back. Throws RefusedError. */
function checkQuotaValue(field: QuotaField, value: number): number {
  const { min, max } = QUOTA_BOUNDS[field]
  if (Number.isInteger(value) && value >= min && value <= max) return value
  throw new RefusedError('InvalidValue', field, `${field} ${value}: expected ${min} to ${max}`)
}
