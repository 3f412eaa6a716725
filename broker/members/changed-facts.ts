/**
 * Facts that a member states after its join. Where an operator approves joins, ranges and labels that a member states
 * later need approval too. Otherwise a cluster could be accepted with harmless ranges and then claim those of another
 * member, or with harmless labels and then those that access policies let in. Labels of its token it never changes.
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
  areSameLabels,
  areSameRanges,
  changeOf,
  isAskedAbout,
  labelsText,
  rangesHash,
  widened,
  withAccepted,
  withRanges,
} from '../addresses/addresses.ts'
import { type Audit, renumberedDetail } from '../audit/audit.ts'
import { type Refusal, type WriteContext, type WriteRules, refusal } from '../records/records.ts'
import { type MemberRow, type RecordLog, type Transaction, isLive, timeText } from '../store/store.ts'
import { hitBy } from './member-addresses.ts'
import { changeFacts } from './membership.ts'
import { fixedLabel, labelsWith } from './token-labels.ts'
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
 * Takes the facts. Ranges and labels that need approval are left out and wait. Required ranges (node networks) are not
 * known at the join and change with the nodes, so they wait only if other members would be renumbered. Throws
 * RefusedError.
 */
export function stateFacts(tx: Transaction, facts: ClusterFacts, context: WriteContext): StatedFacts {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return { renumbered: [] }
  const stated = stateChange(tx, { ...facts, labels: labelsWith(facts.labels, row.tokenLabels) }, row, context)
  const fixed = fixedLabel(facts.labels, row.tokenLabels)
  if (fixed === undefined || stated.refused !== undefined) return stated
  const text = `${fixed} is stated by the join token of this cluster, and stays ${row.tokenLabels?.[fixed]}`
  return { ...stated, refused: refusal('labels', text, 'LabelFixedByToken') }
}

function stateChange(tx: Transaction, facts: ClusterFacts, row: MemberRow, context: WriteContext): StatedFacts {
  if (!isAskedAbout(row, context.rules)) return taken(tx, facts, context)
  const wider = widened(facts, row.facts)
  const labels = areSameLabels(facts.labels, row.facts.labels) ? [] : (['labels'] as const)
  if (wider.length + labels.length === 0) return taken(tx, facts, context)
  // Facts that would be refused anyway do not wait: this call throws for them.
  const renumbers = hitBy(tx, { ...row, facts }, context)
  const ranges = wider.some((field) => field !== 'neededCIDRs') || renumbers.length > 0 ? wider : []
  const waits = [...ranges, ...labels]
  const [field] = waits
  const change = changeOf(facts, waits)
  const known = row.changed !== undefined && areSameRanges(row.changed, change) ? row.changed : undefined
  if (field === undefined || known?.acceptedAtMs !== undefined) return taken(tx, facts, context)
  const shown = renumbers.slice(0, MAX_RENUMBERS)
  const changed = known ?? { ...change, sinceMs: context.nowMs, renumbers: shown }
  const kept = withAccepted(facts, row.facts, waits)
  const rest = changeFacts(tx, kept, context, changed)
  return {
    ...(rest.changed ? { taken: kept } : {}),
    renumbered: rest.renumbered,
    refused: rangesRefusal(field, { changed, facts: row.facts }, context.cluster),
    ...(known !== undefined ? {} : { waits: { ranges: change, renumbers: shown } }),
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
  const isOfLabels = field === 'labels'
  const what = isOfLabels ? 'labels' : 'ranges'
  const force = isOfLabels ? labelsText(facts.labels) : [...facts.podCIDRs, ...facts.serviceCIDRs].join(', ')
  const stay = `the accepted ${what} (${force}) stay in effect`
  if (changed.refusedAtMs !== undefined) {
    const text = `an operator of the broker refused these ${what} at ${timeText(changed.refusedAtMs)}: ${stay}`
    return refusal(field, text, 'RangesRefusedByOperator')
  }
  const how = `sealane cluster accept ${cluster} --fingerprint ${fingerprint}`
  return refusal(
    field,
    `these ${what} wait for approval by an operator, and ${stay}; on the broker, run: ${how}`,
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
