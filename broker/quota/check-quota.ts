/** Whether a record fits into its member's quota. Runs inside the transaction that would store it. */
import { type QuotaReport, QUOTA_FIELD, quotaExcess, quotaProblem } from '../../model/quota/member-quota.ts'
import type { ClusterId } from '../../model/ids.ts'
import { type MemberRecord, recordKeyText } from '../../model/records.ts'
import type { MemberQuota } from '../../model/quota/member-quota.ts'
import { type Refusal, refusal } from '../admission/admission-checks.ts'
import type { LogView } from '../log/record-log.ts'
import type { RecordRow } from '../state/state.ts'
import { quotaAndUse, quotaOf } from './member-quota.ts'

export interface QuotaContext {
  readonly cluster: ClusterId
  readonly rules: { readonly quota: MemberQuota }
}

export interface OfferedRecord {
  readonly record: MemberRecord
  /** What is there under its key. */
  readonly old: RecordRow | undefined
  readonly bytes: number
}

/** Undefined when it may be stored. A refusal for want of room takes nothing away: what was there before stays. */
export function checkQuota(view: LogView, offered: OfferedRecord, context: QuotaContext): Refusal | undefined {
  return checkRoom(view, offered, context) ?? checkChurn(view, offered, context)
}

function checkRoom(view: LogView, { record, old, bytes }: OfferedRecord, context: QuotaContext): Refusal | undefined {
  const { cluster, rules } = context
  // Its gateways: no quota cuts a lane. They have a limit of their own, and come out of the same use.
  if (record.body.kind === 'Endpoint') return undefined
  const report: Pick<QuotaReport, 'limit' | 'used'> = quotaAndUse(view, cluster, rules.quota)
  const more = { records: old === undefined ? 1 : 0, bytes: bytes - (old?.bytes ?? 0) }
  const reason = quotaExcess(report, more, old !== undefined || hasService(view, record, cluster))
  if (reason === undefined) return undefined
  const refused = refusal(QUOTA_FIELD[reason], quotaProblem(reason, cluster, report), reason)
  return old === undefined ? refused : { ...refused, kept: true }
}

/** Stamps of withdrawn exports stay for a day, and are no records. Lowering one member's quota must not look like churn. */
function checkChurn(view: LogView, { old }: OfferedRecord, { cluster, rules }: QuotaContext): Refusal | undefined {
  if (old !== undefined) return undefined
  const most = 2 * Math.max(quotaOf(view, cluster, rules.quota).records, rules.quota.records)
  if (view.count('stamp', cluster) < most) return undefined
  return refusal(
    'records',
    `cluster "${cluster}" has exported and withdrawn too many services within a day`,
    'RecordChurn',
  )
}

/** It is an endpoint slice of a service that is exported. */
function hasService(view: LogView, { namespace, body }: MemberRecord, cluster: ClusterId): boolean {
  if (body.kind !== 'EndpointSlice') return false
  return (
    view.get('record', recordKeyText({ cluster, kind: 'ServiceExport', namespace, name: body.service })) !== undefined
  )
}
