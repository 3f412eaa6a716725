/**
 * Address ranges that a member states in place of those that an operator accepted. They wait in the member's row, and
 * the accepted ones stay in force. Pure.
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

export type Ranges = Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs' | 'neededCIDRs'>

const FIELDS = ['podCIDRs', 'serviceCIDRs', 'neededCIDRs'] as const

/** Whether an operator decides about the ranges of this member. */
export function isAskedAbout({ approve }: Pick<MemberRow, 'approve'>, rules: { readonly approve?: boolean }): boolean {
  return rules.approve === true || approve === true
}

export function rangesOf({ podCIDRs, serviceCIDRs, neededCIDRs }: Ranges): Ranges {
  return { podCIDRs, serviceCIDRs, ...(neededCIDRs === undefined ? {} : { neededCIDRs }) }
}

/** The facts with these ranges in place of their own. */
export function withRanges({ neededCIDRs: _own, ...rest }: ClusterFacts, ranges: Ranges): ClusterFacts {
  return { ...rest, ...rangesOf(ranges) }
}

export function areSameRanges(one: Ranges, other: Ranges): boolean {
  return rangesText(one) === rangesText(other)
}

/** SHA-256, hex: names the ranges when an operator accepts them. */
export function rangesHash(ranges: Ranges): string {
  return createHash('sha256').update(rangesText(ranges)).digest('hex')
}

function rangesText(ranges: Ranges): string {
  const { podCIDRs, serviceCIDRs, neededCIDRs = [] } = ranges
  return canonicalJson({ podCIDRs, serviceCIDRs, neededCIDRs })
}

/** The fields of the stated ranges with addresses that the accepted ranges of the same field do not contain. */
export function widened(stated: Ranges, accepted: Ranges): (typeof FIELDS)[number][] {
  return FIELDS.filter((field) => {
    const known = aggregate((accepted[field] ?? []).map((text) => parsePrefix(text)))
    return (stated[field] ?? []).some((text) => !isInside(parsePrefix(text), known))
  })
}

/** The note for the list of members. Undefined if no ranges wait. */
export function rangesNote({ changed }: Pick<MemberRow, 'changed'>): string | undefined {
  if (changed === undefined) return undefined
  const what = [...changed.podCIDRs, ...changed.serviceCIDRs, ...(changed.neededCIDRs ?? [])].join(', ')
  if (changed.refusedAtMs !== undefined)
    return `the cluster states ranges that an operator refused (RangesRefusedByOperator): ${what}`
  return `the cluster states ranges that wait for approval (RangesAwaitApproval): ${what}`
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
    return isLive(row) && row.changed === undefined && waited !== undefined && areSameRanges(waited, row.facts)
  }
}
