/**
 * How much is used of what the whole clusterset shares: members, tokens, clusterset IPs. Each has a metric, and a line
 * in the log before it is full, which names what to do.
 */
import { NEARLY_FULL } from '../../model/quota/most-members.ts'
import { parsePrefix, prefixSize } from '../../model/addresses/ip.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { LogView } from '../log/record-log.ts'
import type { BrokerMetrics } from '../metrics.ts'
import { isLive } from '../state/state.ts'

export const SHARED_RANGES = ['members', 'tokens', 'clustersetIPs'] as const
export type SharedRange = (typeof SHARED_RANGES)[number]

export interface RangeUse {
  readonly used: number
  readonly limit: number
}

export interface RangeLimits {
  readonly members: number
  readonly tokens: number
  /** CIDR. */
  readonly clustersetIpRange: string
}

const REMEDY: Readonly<Record<SharedRange, string>> = {
  members: 'evict those that are gone, or start the broker with a higher --max-members',
  tokens: 'make tokens for several clusters: "sealane token create --uses"; dead ones go a week after they expire',
  clustersetIPs: 'withdraw exports; a larger range is given at the first start of a broker, with --clusterset-ip-range',
}

/** Network and broadcast address are nobody's. */
const UNUSABLE = 2n

export function rangeUses(view: LogView, limits: RangeLimits): Readonly<Record<SharedRange, RangeUse>> {
  const { members, tokens, clustersetIpRange } = limits
  const live = view.list('member').filter(({ value }) => isLive(value)).length
  return {
    members: { used: live, limit: members },
    tokens: { used: view.count('token'), limit: tokens },
    clustersetIPs: {
      used: view.count('address'),
      limit: Number(prefixSize(parsePrefix(clustersetIpRange)) - UNUSABLE),
    },
  }
}

export interface RangeWarningsDeps {
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

  /** To be called now and then. Each is logged once, until it has room again. */
  report(): void {
    const { log, logger, metrics } = this.#deps
    const uses = rangeUses(log, this.#limits)
    for (const range of SHARED_RANGES) {
      const { used, limit } = uses[range]
      metrics.rangeUsed.set(used / limit, { range })
      if (used < limit * NEARLY_FULL) this.#warned.delete(range)
      else if (!this.#warned.has(range)) {
        this.#warned.add(range)
        logger.warn('the broker runs out of what all members share', {
          ...{ reason: 'RangeNearlyFull', range, used, limit, todo: REMEDY[range] },
        })
      }
    }
  }
}
