/**
 * Address ranges of members as numbers. A row of the log is replaced and never altered, so each list is read once: when
 * one of a thousand members joins, those of the others are the same as before.
 */
import {
  type NeededRange,
  type Prefix,
  formatPrefix,
  ipv4Among,
  neededRanges,
  parsePrefix,
} from '../../model/addresses/addresses.ts'

type Candidate = { readonly address: string }

export interface ParsedRange {
  readonly prefix: Prefix
  /** As formatPrefix() writes it. */
  readonly text: string
}

/** Of a list of CIDRs that does not change: those that are IPv4, in their order. Throws InvalidAddressError. */
export const ipv4Ranges = remembered((texts: readonly string[]): readonly ParsedRange[] =>
  ipv4Among(texts).map((text) => {
    const prefix = parsePrefix(text)
    return { prefix, text: formatPrefix(prefix) }
  }),
)

/** Of a member's blocks that do not change. Throws InvalidAddressError. */
export const blockPrefixes = remembered((blocks: Readonly<Record<string, string>>): readonly Prefix[] =>
  Object.values(blocks).map((text) => parsePrefix(text)),
)

/** What the machines of a member need, by its own list of addresses and CIDRs. */
export const machineRanges = remembered((texts: readonly string[]): readonly NeededRange[] =>
  neededRanges(texts, 'in use by machines'),
)

/** Where a gateway is called, by the candidates of its Endpoint. Gateways are called by IPv4. */
export const candidateRanges = remembered((candidates: readonly Candidate[]): readonly NeededRange[] =>
  neededRanges(ipv4Among(candidates.map(({ address }) => address)), 'a gateway'),
)

/** Remembers for as long as somebody has the argument, which must not change. */
export function remembered<K extends object, V>(read: (from: K) => V): (from: K) => V {
  const known = new WeakMap<K, V>()
  return (from) => {
    const before = known.get(from)
    if (before !== undefined || known.has(from)) return before as V
    const value = read(from)
    known.set(from, value)
    return value
  }
}

// Who stated an address range first. Who did keeps its addresses: a Service range that somebody states later over them
// is that one's own trouble. The order is kept in the members' rows (`claimed`, see orderClaims() in
// address-claims.ts). Pure.

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
