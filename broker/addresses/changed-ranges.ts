/**
 * Address ranges and labels that a member states in place of those that an operator accepted. They wait in the member's
 * row, and the accepted ones stay in force: policies of others believe labels. Pure.
 *
 *   in force ──states others──► waits ──accept──► in force
 *      ▲                         │ └──refuse──► refused: until it states others
 *      └──states these again─────┘
 */
import { createHash } from 'node:crypto'
import { aggregate, isInside, parsePrefix } from '../../model/addresses/addresses.ts'
import type { ClusterFacts } from '../../protocol/protocol.ts'
import { canonicalJson } from '../../protocol/codec/codec.ts'
import { type ChangedRanges, type MemberRow, isLive } from '../store/store.ts'

export interface Ranges extends Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs' | 'neededCIDRs'> {
  /** Only if they differ from the accepted ones. */
  readonly labels?: ClusterFacts['labels']
}

const FIELDS = ['podCIDRs', 'serviceCIDRs', 'neededCIDRs'] as const

export type WaitingField = (typeof FIELDS)[number] | 'labels'

/** Whether an operator decides about the ranges of this member. */
export function isAskedAbout({ approve }: Pick<MemberRow, 'approve'>, rules: { readonly approve?: boolean }): boolean {
  return rules.approve === true || approve === true
}

export function rangesOf({ podCIDRs, serviceCIDRs, neededCIDRs }: Ranges): Ranges {
  return { podCIDRs, serviceCIDRs, ...(neededCIDRs === undefined ? {} : { neededCIDRs }) }
}

/** The facts with these ranges, and labels if any, in place of their own. */
export function withRanges({ neededCIDRs: own, ...rest }: ClusterFacts, ranges: Ranges): ClusterFacts {
  const { labels } = ranges
  // Labels alone wait without node networks, which change meanwhile.
  const kept = labels !== undefined && own !== undefined ? { neededCIDRs: own } : {}
  return { ...rest, ...kept, ...rangesOf(ranges), ...(labels === undefined ? {} : { labels }) }
}

/** The accepted facts with what of the stated ones waits for nobody. Takes the fields that wait. */
export function withAccepted(
  stated: ClusterFacts,
  accepted: ClusterFacts,
  waits: readonly WaitingField[],
): ClusterFacts {
  const { neededCIDRs: _own, ...rest } = stated
  const ranges = rangesOf(waits.some((field) => field !== 'labels') ? accepted : stated)
  return { ...rest, ...ranges, labels: waits.includes('labels') ? accepted.labels : stated.labels }
}

/** What waits of the stated facts. Takes the fields that wait. */
export function changeOf(stated: ClusterFacts, waits: readonly WaitingField[]): Ranges {
  const { labels, podCIDRs, serviceCIDRs } = stated
  const ranges = waits.some((field) => field !== 'labels') ? rangesOf(stated) : { podCIDRs, serviceCIDRs }
  return { ...ranges, ...(waits.includes('labels') ? { labels } : {}) }
}

/** Whether all that waited is part of the facts. */
export function isInForce(waited: Ranges, { podCIDRs, serviceCIDRs, neededCIDRs, labels }: ClusterFacts): boolean {
  const isOfLabels = waited.labels !== undefined
  const needed = isOfLabels && waited.neededCIDRs === undefined ? [] : (neededCIDRs ?? [])
  const ranges = { podCIDRs, serviceCIDRs, neededCIDRs: needed }
  return areSameRanges(waited, isOfLabels ? { ...ranges, labels } : ranges)
}

export function areSameRanges(one: Ranges, other: Ranges): boolean {
  return rangesText(one) === rangesText(other)
}

/** SHA-256, hex: names the ranges when an operator accepts them. */
export function rangesHash(ranges: Ranges): string {
  return createHash('sha256').update(rangesText(ranges)).digest('hex')
}

function rangesText(ranges: Ranges): string {
  const { podCIDRs, serviceCIDRs, neededCIDRs = [], labels } = ranges
  // A fingerprint of ranges alone is that of earlier releases.
  return canonicalJson({ podCIDRs, serviceCIDRs, neededCIDRs, ...(labels === undefined ? {} : { labels }) })
}

/** The fields of the stated ranges with addresses that the accepted ranges of the same field do not contain. */
export function widened(stated: Ranges, accepted: Ranges): (typeof FIELDS)[number][] {
  return FIELDS.filter((field) => {
    const known = aggregate((accepted[field] ?? []).map((text) => parsePrefix(text)))
    return (stated[field] ?? []).some((text) => !isInside(parsePrefix(text), known))
  })
}

/** Whether the members' labels are the same. */
export function areSameLabels(one: ClusterFacts['labels'], other: ClusterFacts['labels']): boolean {
  return canonicalJson(one) === canonicalJson(other)
}

/** The labels as text, for people. */
export function labelsText(labels: ClusterFacts['labels']): string {
  const pairs = Object.entries(labels).map(([key, value]) => `${key}=${value}`)
  return pairs.length === 0 ? 'no labels' : `labels ${pairs.sort().join(', ')}`
}

/** What of the accepted facts is to change. */
export function changedFields(changed: Ranges, facts: ClusterFacts): 'ranges' | 'labels' | 'ranges and labels' {
  if (changed.labels === undefined) return 'ranges'
  return isInForce({ ...changed, labels: facts.labels }, facts) ? 'labels' : 'ranges and labels'
}

/** The note for the list of members. Undefined if neither ranges nor labels wait. */
export function rangesNote({ changed, facts }: Pick<MemberRow, 'changed' | 'facts'>): string | undefined {
  if (changed === undefined) return undefined
  const { podCIDRs, serviceCIDRs, neededCIDRs = [], labels } = changed
  const fields = changedFields(changed, facts)
  const ranges = [...podCIDRs, ...serviceCIDRs, ...neededCIDRs].join(', ')
  const stated = labels === undefined ? '' : labelsText(labels)
  const what = fields === 'labels' ? stated : fields === 'ranges' ? ranges : `${ranges}, with ${stated}`
  const state =
    changed.refusedAtMs === undefined
      ? 'wait for approval (RangesAwaitApproval)'
      : 'an operator refused (RangesRefusedByOperator)'
  return `the cluster states ${fields} that ${state}: ${what}`
}

/** Remembers which ranges of a member waited at the last check of its row. */
export class SeenRanges {
  #waited: ChangedRanges | undefined

  constructor(row: MemberRow | undefined) {
    this.#waited = row?.changed
  }

  /** Takes the current row. Returns whether the ranges that waited have taken effect since the last check. */
  accepted(row: MemberRow | undefined): boolean {
    const waited = this.#waited
    this.#waited = row?.changed
    return isLive(row) && row.changed === undefined && waited !== undefined && isInForce(waited, row.facts)
  }
}
