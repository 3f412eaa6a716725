/** How near members are to their quotas, in few figures: which member it is says `sealane cluster list`. */
import type { MemberQuota } from '../../model/quota/member-quota.ts'
import type { LogView } from '../log/record-log.ts'
import type { BrokerMetrics } from '../metrics.ts'
import { isLive } from '../state/state.ts'
import { quotaAndUse } from './member-quota.ts'

const RESOURCES = ['records', 'bytes'] as const
const NEAR = 0.8

export interface CountQuotasDeps {
  readonly log: LogView
  readonly metrics: Pick<BrokerMetrics, 'quotaMembers' | 'quotaMost'>
}

/** `fallback`: as of quotaOf(). */
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

/** A quota of nothing is full from the start. */
function ratio(used: number, limit: number): number {
  return limit === 0 ? used + 1 : used / limit
}
