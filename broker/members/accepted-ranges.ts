/** Ranges that an operator has accepted count as soon as a broker sees his answer, whoever wrote it into the store. */
import type { ClusterId } from '../../model/ids.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { reasonOf } from '../../runtime/error-reason.ts'
import type { Logger } from '../../runtime/logging/logger.ts'
import { renumberedDetail } from '../audit/audit-callers.ts'
import type { Audit } from '../audit/audit-trail.ts'
import type { RecordLog } from '../log/record-log.ts'
import type { WriteRules } from '../records/record-writes.ts'
import { isAccepted, takeAccepted } from './changed-facts.ts'

export interface AcceptedRangesDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly audit: Audit
}

export class AcceptedRanges {
  readonly #deps: AcceptedRangesDeps
  readonly #rules: WriteRules

  constructor(deps: AcceptedRangesDeps, rules: WriteRules) {
    this.#deps = deps
    this.#rules = rules
  }

  /** To be called when these members have changed, and now and then with all: what failed is tried again. */
  take(members: readonly ClusterId[]): void {
    const { log, logger } = this.#deps
    for (const cluster of members.filter((one) => isAccepted(log.get('member', one)))) {
      this.#takeOf(cluster).catch((error: unknown) => {
        const reason = reasonOf(error) ?? 'RoundFailed'
        logger.warn('accepted ranges not taken yet', { reason, cluster, why: String(error) })
      })
    }
  }

  async #takeOf(cluster: ClusterId): Promise<void> {
    const { log, clock, logger, audit } = this.#deps
    const stated = await log.transact((tx) => {
      const stated = takeAccepted(tx, { cluster, rules: this.#rules, nowMs: clock.now() })
      if (stated?.taken === undefined) return stated
      const { podCIDRs, serviceCIDRs, version } = stated.taken
      const details = { podCIDRs, serviceCIDRs, version, ...renumberedDetail(stated.renumbered) }
      audit.keep(tx, { act: 'facts', result: 'ok', who: { kind: 'broker' }, subject: cluster, details })
      return stated
    })
    const { refused } = stated ?? {}
    if (refused === undefined) return
    const { reason, message: why } = refused
    logger.warn('accepted ranges cannot be granted, they wait again', { reason, cluster, why })
  }
}
