/**
 * Facts that a member states after its join. Where an operator approves joins, ranges that a member states later need
 * approval too. Otherwise a cluster could be accepted with harmless ranges and then claim those of another member.
 * Each function runs inside a transaction.
 */
import type { ClusterId } from '../../model/model.ts'
import { type ClusterFacts, RefusedError } from '../../protocol/protocol.ts'
import { keyFingerprint } from '../../protocol/identity/identity.ts'
import type { Clock } from '../../reconcile/reconcile.ts'
import { reasonOf } from '../../runtime/runtime.ts'
import type { Logger } from '../../runtime/logging/logging.ts'
import {
  type Ranges,
  areSameRanges,
  isAskedAbout,
  rangesHash,
  rangesOf,
  widened,
  withRanges,
} from '../addresses/addresses.ts'
import { type Audit, renumberedDetail } from '../audit/audit.ts'
import { type Refusal, type WriteContext, type WriteRules, refusal } from '../records/records.ts'
import { type MemberRow, type RecordLog, type Transaction, isLive, timeText } from '../store/store.ts'
import { hitBy } from './member-addresses.ts'
import { changeFacts } from './membership.ts'
import { MAX_RENUMBERS } from './waiting-joins.ts'

export interface StatedFacts {
  /** Facts that take effect with this call. Undefined if there are none. */
  readonly taken?: ClusterFacts
  /** Other members that had no global addresses before and have some now. */
  readonly renumbered: readonly ClusterId[]
  /** Why the ranges were not taken; the other facts were. */
  readonly refused?: Refusal
  /** Ranges that wait for approval since this call. */
  readonly waits?: { readonly ranges: Ranges; readonly renumbers: readonly string[] }
}

/**
 * Takes the facts. Ranges that need approval are left out and wait. Required ranges (node networks) are not known at
 * the join and change with the nodes, so they wait only if other members would be renumbered. Throws RefusedError.
 */
export function stateFacts(tx: Transaction, facts: ClusterFacts, context: WriteContext): StatedFacts {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return { renumbered: [] }
  if (!isAskedAbout(row, context.rules)) return taken(tx, facts, context)
  const isAccepted = row.changed?.acceptedAtMs !== undefined && areSameRanges(row.changed, facts)
  const field = widened(facts, row.facts).at(0)
  if (field === undefined || isAccepted) return taken(tx, facts, context)
  // Facts that would be refused anyway do not wait: this call throws for them.
  const renumbers = hitBy(tx, { ...row, facts }, context)
  if (field === 'neededCIDRs' && renumbers.length === 0) return taken(tx, facts, context)
  const isKnown = row.changed !== undefined && areSameRanges(row.changed, facts)
  const shown = renumbers.slice(0, MAX_RENUMBERS)
  const changed = isKnown ? row.changed : { ...rangesOf(facts), sinceMs: context.nowMs, renumbers: shown }
  const kept = withRanges(facts, row.facts)
  const rest = changeFacts(tx, kept, context, changed)
  return {
    ...(rest.changed ? { taken: kept } : {}),
    renumbered: rest.renumbered,
    refused: rangesRefusal(field, { changed, facts: row.facts }, context.cluster),
    ...(isKnown ? {} : { waits: { ranges: rangesOf(facts), renumbers: shown } }),
  }
}

function taken(tx: Transaction, facts: ClusterFacts, context: WriteContext): StatedFacts {
  const { changed, renumbered } = changeFacts(tx, facts, context)
  return { ...(changed ? { taken: facts } : {}), renumbered }
}

/** Whether an operator has accepted ranges of this member that are not in effect yet. */
export function isAccepted(row: MemberRow | undefined): boolean {
  return isLive(row) && row.changed?.acceptedAtMs !== undefined
}

/**
 * Puts the accepted ranges of the member into effect. If they can no longer be granted, they wait again and `refused`
 * says why. Undefined if the member has no accepted ranges.
 */
export function takeAccepted(tx: Transaction, context: WriteContext): StatedFacts | undefined {
  const row = tx.get('member', context.cluster)
  if (!isLive(row) || row.changed?.acceptedAtMs === undefined) return undefined
  const facts = withRanges(row.facts, row.changed)
  try {
    return taken(tx, facts, context)
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error
    const { acceptedAtMs: _over, ...changed } = row.changed
    tx.put('member', context.cluster, { ...row, changed })
    return { renumbered: [], refused: { field: error.field, reason: error.reason, message: error.message } }
  }
}

/**
 * The refusal of ranges that wait for approval or that an operator refused. `field` is one that differs from the
 * accepted ranges.
 */
function rangesRefusal(
  field: string,
  { changed, facts }: Required<Pick<MemberRow, 'changed' | 'facts'>>,
  cluster: string,
): Refusal {
  const fingerprint = keyFingerprint(rangesHash(changed))
  const force = [...facts.podCIDRs, ...facts.serviceCIDRs].join(', ')
  const stay = `the accepted ranges (${force}) stay in effect`
  if (changed.refusedAtMs !== undefined) {
    const text = `an operator of the broker refused these ranges at ${timeText(changed.refusedAtMs)}: ${stay}`
    return refusal(field, text, 'RangesRefusedByOperator')
  }
  const how = `sealane cluster accept ${cluster} --fingerprint ${fingerprint}`
  return refusal(
    field,
    `these ranges wait for approval by an operator, and ${stay}; on the broker, run: ${how}`,
    'RangesAwaitApproval',
  )
}

interface AcceptedRangesDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly audit: Audit
}

/**
 * Puts ranges into effect as soon as this broker sees that an operator accepted them, whichever process wrote the
 * answer.
 */
export class AcceptedRanges {
  readonly #deps: AcceptedRangesDeps
  readonly #rules: WriteRules

  constructor(deps: AcceptedRangesDeps, rules: WriteRules) {
    this.#deps = deps
    this.#rules = rules
  }

  /**
   * The caller runs it when these members have changed, and regularly for all members, so that a failed attempt is
   * repeated.
   */
  take(members: readonly ClusterId[]): void {
    const { log, logger } = this.#deps
    for (const cluster of members.filter((one) => isAccepted(log.get('member', one)))) {
      this.#takeOf(cluster).catch((error: unknown) => {
        const reason = reasonOf(error) ?? 'RoundFailed'
        logger.warn('cannot apply accepted ranges; retrying', { reason, cluster, why: String(error) })
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
    logger.warn('the broker cannot grant accepted ranges; they wait for approval again', { reason, cluster, why })
  }
}
