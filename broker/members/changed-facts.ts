/**
 * What a member states of itself after its join. Where an operator decides about joins, he decides about ranges that
 * are stated later, too: else a cluster would be accepted with ranges that harm nobody, and take another's afterwards.
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

const MAX_RENUMBERS = 16

export interface StatedFacts {
  /** Facts that count from now on and did not before; undefined: none. */
  readonly taken?: ClusterFacts
  /** Other members that had no global addresses and have some now. */
  readonly renumbered: readonly ClusterId[]
  /** The ranges were not taken, with the rest of the facts. */
  readonly refused?: Refusal
  /** Ranges that wait since this very message. */
  readonly waits?: { readonly ranges: Ranges; readonly renumbers: readonly string[] }
}

/**
 * Takes the facts, or all of them but the ranges, which wait then. Node networks are not known at a join and change
 * with the nodes: they wait only where other members would be renumbered. Throws RefusedError.
 */
export function stateFacts(tx: Transaction, facts: ClusterFacts, context: WriteContext): StatedFacts {
  const row = tx.get('member', context.cluster)
  if (!isLive(row)) return { renumbered: [] }
  if (!isAskedAbout(row, context.rules)) return taken(tx, facts, context)
  const isAccepted = row.changed?.acceptedAtMs !== undefined && areSameRanges(row.changed, facts)
  const field = widened(facts, row.facts).at(0)
  if (field === undefined || isAccepted) return taken(tx, facts, context)
  // What would be refused anyway does not wait.
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

/** Members whose ranges were accepted, and do not count yet. */
export function isAccepted(row: MemberRow | undefined): boolean {
  return isLive(row) && row.changed?.acceptedAtMs !== undefined
}

/**
 * Lets the accepted ranges of the member count. They wait again where they cannot be granted any more: `refused` says
 * why. Undefined: there are none.
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

/** Of facts whose ranges wait, or were refused. `field` is one of those that are other than the accepted ones. */
function rangesRefusal(
  field: string,
  { changed, facts }: Required<Pick<MemberRow, 'changed' | 'facts'>>,
  cluster: string,
): Refusal {
  const fingerprint = keyFingerprint(rangesHash(changed))
  const force = [...facts.podCIDRs, ...facts.serviceCIDRs].join(', ')
  const stay = `those that were accepted (${force}) stay in force`
  if (changed.refusedAtMs !== undefined) {
    const text = `an operator of the broker refused these ranges at ${timeText(changed.refusedAtMs)}: ${stay}`
    return refusal(field, text, 'RangesRefusedByOperator')
  }
  const how = `sealane cluster accept ${cluster} --fingerprint ${fingerprint}`
  return refusal(
    field,
    `these ranges wait for an operator of the broker, and ${stay}; on the broker: ${how}`,
    'RangesAwaitApproval',
  )
}

interface AcceptedRangesDeps {
  readonly log: RecordLog
  readonly clock: Clock
  readonly logger: Logger
  readonly audit: Audit
}

/** Ranges that an operator has accepted count as soon as a broker sees his answer, whoever wrote it into the store. */
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
