/** What waits for an operator, as the store keeps it. */
import type { ClusterFacts } from '../../protocol/broker-api.ts'

/** Ranges that a member states in place of those that an operator accepted. */
export interface ChangedRanges extends Pick<ClusterFacts, 'podCIDRs' | 'serviceCIDRs' | 'neededCIDRs'> {
  readonly sinceMs: number
  /** Members that get global addresses, or lose their IPv6, if it is accepted; as of when it was stated. */
  readonly renumbers: readonly string[]
  readonly acceptedAtMs?: number
  readonly refusedAtMs?: number
}

/** Key: cluster/token. A join that waits for an operator, or was answered and not asked for again yet. */
export interface WaitingRow {
  /** SHA-256 of the public key of who waits, hex: the token is bound to it. */
  readonly keyHash: string
  readonly facts: ClusterFacts
  /** Where it asked from last, as the broker saw it. */
  readonly address: string
  readonly sinceMs: number
  /** Now and then, not each time. */
  readonly lastAskedMs: number
  /** End of the token. */
  readonly expiresAtMs: number
  /** Members that got global addresses if it joined, when it asked first. */
  readonly renumbers: readonly string[]
  readonly acceptedAtMs?: number
  readonly refusedAtMs?: number
}
