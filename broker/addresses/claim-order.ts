/**
 * Who stated an address range first. Who did keeps its addresses: a Service range that somebody states later over them
 * is that one's own trouble. The order is kept in the members' rows (`claimed`, see orderClaims() in
 * address-claims.ts). Pure.
 */
import { formatPrefix, type Prefix } from '../../model/addresses/ip.ts'

/** By CIDR as formatPrefix() writes it. Ranges that are not among them were stated before all that are. */
export type ClaimOrder = Readonly<Record<string, number>>

export interface OrderedClaim {
  readonly order: number
  /** Number of the cluster: decides between two of one order. */
  readonly index: number
}

/** Of a range that is in no order. */
export const STATED_FIRST = -1

export function orderOf(prefix: Prefix, claimed: ClaimOrder = {}): number {
  return claimed[formatPrefix(prefix)] ?? STATED_FIRST
}

export function isEarlier(one: OrderedClaim, other: OrderedClaim): boolean {
  return one.order === other.order ? one.index < other.index : one.order < other.order
}
