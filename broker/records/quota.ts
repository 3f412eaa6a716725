/** The quota of each member, read from the log: every replica reads the same, and a restart keeps it. */
import { NEARLY_FULL, parsePrefix, prefixSize } from '../../model/addresses/addresses.ts'
import {
  type ClusterId,
  type MemberQuota,
  type MemberRecord,
  QUOTA_BOUNDS,
  QUOTA_FIELD,
  QUOTA_FIELDS,
  type QuotaField,
  type QuotaReport,
  type QuotaUse,
  parseClusterId,
  quotaExcess,
  quotaProblem,
  recordKeyText,
} from '../../model/model.ts'
import type { QuotaInit } from '../../protocol/admin/admin.ts'
import { RefusedError } from '../../protocol/protocol.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import { clusterRecordKey } from '../addresses/addresses.ts'
import type { BrokerMetrics } from '../config/config.ts'
import { type LogView, type RecordRow, SETTINGS_KEY, type Transaction, isLive } from '../store/store.ts'
import { quote } from '../../model/grammar/grammar.ts'
import { type Refusal, refusal } from './admission.ts'
import { statusOf } from './status-records.ts'

/**
 * The member's own limits over those for all members. `fallback` applies if the store has none, as in that of an
 * earlier release.
 */
export function quotaOf(view: LogView, cluster: string, fallback: MemberQuota): MemberQuota {
  const ofAll = view.get('settings', SETTINGS_KEY)?.quota ?? fallback
  return { ...ofAll, ...view.get('member', cluster)?.quota }
}

/**
 * Use of the records that the member publishes. Its Cluster record and status, which the broker writes, are not
 * counted.
 */
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

/**
 * Changes the limits of a member, even if it is not connected. Returns false if they were the same before. Throws
 * RefusedError if there is no such member or a value is out of bounds, InvalidNameError if the id is invalid.
 */
export function changeQuota(tx: Transaction, { cluster, change }: QuotaInit): boolean {
  const id = parseClusterId(cluster, 'cluster')
  const row = tx.get('member', id)
  if (!isLive(row))
    throw new RefusedError(
      'MemberUnknown',
      'cluster',
      `cluster ${quote(id)} is not a member; list the members: sealane cluster list`,
    )
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

/** Returns the value. Throws RefusedError. */
function checkQuotaValue(field: QuotaField, value: number): number {
  const { min, max } = QUOTA_BOUNDS[field]
  if (Number.isInteger(value) && value >= min && value <= max) return value
  throw new RefusedError('InvalidValue', field, `${field} ${value}: expected ${min} to ${max}`)
}

// Metrics on how close members are to their quotas, in few series. `sealane cluster list` names the members.

const RESOURCES = ['records', 'bytes'] as const
const NEAR = 0.8

interface CountQuotasDeps {
  readonly log: LogView
  readonly metrics: Pick<BrokerMetrics, 'quotaMembers' | 'quotaMost'>
}

/** `fallback`: see quotaOf(). */
export function countQuotas({ log, metrics }: CountQuotasDeps, fallback: MemberQuota): void {
  const members = log.list('member').filter(({ value }) => isLive(value))
  const all = members.map(({ key }) => quotaAndUse(log, key, fallback))
  for (const resource of RESOURCES) {
    const ratios = all.map(({ limit, used }) => ratio(used[resource], limit[resource]))
    metrics.quotaMembers.set(ratios.filter((one) => one >= NEAR && one < 1).length, { resource, use: 'near' })
    metrics.quotaMembers.set(ratios.filter((one) => one >= 1).length, { resource, use: 'full' })
    metrics.quotaMost.set(Math.max(0, ...ratios), { resource })
  }
}

/** A quota of zero is always full. */
function ratio(used: number, limit: number): number {
  return limit === 0 ? used + 1 : used / limit
}

// Use of what the whole clusterset shares: members, tokens, clusterset IPs. Each has a metric, and a log line before it
// is full, which names the remedy.

const SHARED_RANGES = ['members', 'tokens', 'clustersetIPs'] as const
type SharedRange = (typeof SHARED_RANGES)[number]

interface RangeUse {
  readonly used: number
  readonly limit: number
}

interface RangeLimits {
  readonly members: number
  readonly tokens: number
  /** The range as CIDR. */
  readonly clustersetIpRange: string
}

const REMEDY: Readonly<Record<SharedRange, string>> = {
  members: 'evict members that no longer exist, or start the broker with a higher --max-members',
  tokens:
    'create tokens for several clusters: "sealane token create --uses"; tokens are removed a week after they expire',
  clustersetIPs:
    'withdraw exports; a larger range can be set only at the first start of a broker, with --clusterset-ip-range',
}

/** The network and broadcast addresses are never allocated. */
const UNUSABLE = 2n

export function rangeUses(view: LogView, limits: RangeLimits): Readonly<Record<SharedRange, RangeUse>> {
  const { members, tokens, clustersetIpRange } = limits
  const live = view.list('member').filter(({ value }) => isLive(value)).length
  // An address that was released keeps its row until another service needs it.
  const held = view.list('serviceIp').filter(({ value }) => value.releasedAtMs === undefined).length
  return {
    members: { used: live, limit: members },
    tokens: { used: view.count('token'), limit: tokens },
    clustersetIPs: {
      used: held,
      limit: Number(prefixSize(parsePrefix(clustersetIpRange)) - UNUSABLE),
    },
  }
}

interface RangeWarningsDeps {
  readonly log: LogView
  readonly logger: Logger
  readonly metrics: Pick<BrokerMetrics, 'rangeUsed'>
}

export class RangeWarnings {
  readonly #deps: RangeWarningsDeps
  readonly #limits: RangeLimits
  readonly #warned = new Set<SharedRange>()

  constructor(deps: RangeWarningsDeps, limits: RangeLimits) {
    this.#deps = deps
    this.#limits = limits
  }

  /** The caller runs it regularly. Each range is logged once, until it has room again. */
  report(): void {
    const { log, logger, metrics } = this.#deps
    const uses = rangeUses(log, this.#limits)
    for (const range of SHARED_RANGES) {
      const { used, limit } = uses[range]
      metrics.rangeUsed.set(used / limit, { range })
      if (used < limit * NEARLY_FULL) this.#warned.delete(range)
      else if (!this.#warned.has(range)) {
        this.#warned.add(range)
        logger.warn('a shared limit of the clusterset is nearly reached', {
          ...{ reason: 'RangeNearlyFull', range, used, limit, todo: REMEDY[range] },
        })
      }
    }
  }
}

// Whether a record fits into its member's quota. Runs inside the transaction that would store it.

interface QuotaContext {
  readonly cluster: ClusterId
  readonly rules: { readonly quota: MemberQuota }
}

interface OfferedRecord {
  readonly record: MemberRecord
  /** The stored record with the same key. */
  readonly old: RecordRow | undefined
  readonly bytes: number
}

/** Undefined if the record may be stored. A refusal for lack of room removes nothing: the previous version stays. */
export function checkQuota(view: LogView, offered: OfferedRecord, context: QuotaContext): Refusal | undefined {
  return checkRoom(view, offered, context) ?? checkChurn(view, offered, context)
}

function checkRoom(view: LogView, { record, old, bytes }: OfferedRecord, context: QuotaContext): Refusal | undefined {
  const { cluster, rules } = context
  // No quota applies to gateways, since it would cut a lane. Endpoints have a limit of their own, but count as use.
  if (record.body.kind === 'Endpoint') return undefined
  const report: Pick<QuotaReport, 'limit' | 'used'> = quotaAndUse(view, cluster, rules.quota)
  const more = { records: old === undefined ? 1 : 0, bytes: bytes - (old?.bytes ?? 0) }
  const reason = quotaExcess(report, more, old !== undefined || hasService(view, record, cluster))
  if (reason === undefined) return undefined
  const refused = refusal(QUOTA_FIELD[reason], quotaProblem(reason, cluster, report), reason)
  return old === undefined ? refused : { ...refused, kept: true }
}

/**
 * Limits the stamps of withdrawn exports, which are kept for a day and are not records. A lowered quota of the member
 * must not count as churn.
 */
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

/** Whether the record is an EndpointSlice of an exported service. */
function hasService(view: LogView, { namespace, body }: MemberRecord, cluster: ClusterId): boolean {
  if (body.kind !== 'EndpointSlice') return false
  return (
    view.get('record', recordKeyText({ cluster, kind: 'ServiceExport', namespace, name: body.service })) !== undefined
  )
}
