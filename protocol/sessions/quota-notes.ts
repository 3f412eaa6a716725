/** What a member says of its quota: in its log, once for each time that it begins, and in its metrics. */
import type { QuotaReport } from '../../model/quota/member-quota.ts'
import { isQuotaReason } from '../../model/quota/member-quota.ts'
import type { RefusalReason } from '../../model/reasons/reasons.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import type { Metrics } from '../../runtime/metrics/metrics.ts'
import { type QuotaMetrics, quotaMetrics } from './session-metrics.ts'

interface Refused {
  /** Undefined: the facts, or the status. */
  readonly key: string | undefined
  readonly field: string
  readonly reason: RefusalReason
  readonly message: string
}

export class QuotaNotes {
  readonly #logger: Logger
  readonly #metrics: QuotaMetrics
  #isSlowed = false
  #isFull = false

  constructor({ logger, metrics }: { readonly logger: Logger; readonly metrics?: Metrics }) {
    this.#logger = logger
    this.#metrics = quotaMetrics(metrics)
  }

  take(report: QuotaReport, waiting: number): void {
    const { limit, used, isSlowed } = report
    this.#metrics.report(report)
    this.#count(waiting)
    if (isSlowed && !this.#isSlowed) {
      const why = `the quota is ${limit.changes} changes a second`
      this.#logger.warn('the broker takes changes more slowly than they come', { reason: 'QuotaChanges', why })
    }
    this.#isSlowed = isSlowed
    if (waiting > 0 || !this.#isFull) return
    this.#isFull = false
    this.#logger.info('there is room for all records again', { ...used })
  }

  /** Of what waits for room one line is enough: ServiceExports have the rest in their conditions. */
  logRefused({ key = 'cluster facts or status', field, reason, message: why }: Refused, waiting: number): void {
    const isRepeated = isQuotaReason(reason) && this.#isFull
    this.#logger[isRepeated ? 'debug' : 'warn']('record refused', { record: key, field, reason, why })
    if (isQuotaReason(reason)) this.#isFull = true
    this.#count(waiting)
  }

  #count(waiting: number): void {
    this.#metrics.waiting(waiting)
  }
}
