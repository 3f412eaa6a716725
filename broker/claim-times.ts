/**
 * Since when a member states each of its address ranges. Who stated a range first keeps its addresses: a Service range
 * that somebody states later over them is that one's own trouble. Pure.
 */
import type { ClusterFacts } from '../protocol/broker-api.ts'
import type { MemberRow } from './state.ts'

/** By CIDR, milliseconds since 1970. */
export type ClaimTimes = Readonly<Record<string, number>>

/** Ranges that it stated before keep their time, as long as the membership lasts: `old` is its row of before, if it has one. */
export function claimTimes(old: MemberRow | undefined, facts: ClusterFacts, nowMs: number): ClaimTimes {
  const before = old === undefined ? {} : knownClaimTimes(old)
  return Object.fromEntries(rangesOf(facts).map((cidr) => [cidr, before[cidr] ?? nowMs]))
}

/** Rows of earlier versions know when the member joined, and no more. */
export function knownClaimTimes({ statedAtMs, facts, joinedAtMs }: MemberRow): ClaimTimes {
  return statedAtMs ?? Object.fromEntries(rangesOf(facts).map((cidr) => [cidr, joinedAtMs]))
}

export interface TimedClaim {
  /** Undefined: not known, which counts as later than anything. */
  readonly atMs: number | undefined
  /** Number of the cluster: decides between two of one moment. */
  readonly index: number
}

export function isEarlier(one: TimedClaim, other: TimedClaim): boolean {
  if (one.atMs === undefined || other.atMs === undefined) return false
  return one.atMs === other.atMs ? one.index < other.index : one.atMs < other.atMs
}

function rangesOf({ podCIDRs, serviceCIDRs }: Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs'>): string[] {
  return [...podCIDRs, ...serviceCIDRs]
}
