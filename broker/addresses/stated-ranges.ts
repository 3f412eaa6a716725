/**
 * Address ranges of members in parsed form. A row of the log is replaced and never changed, so each list is parsed
 * once: if one of a thousand members joins, the lists of the others are the same objects as before.
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
  /** The prefix as formatPrefix() writes it. */
  readonly text: string
}

/** The IPv4 CIDRs of a list that does not change, in its order. Throws InvalidAddressError. */
export const ipv4Ranges = remembered((texts: readonly string[]): readonly ParsedRange[] =>
  ipv4Among(texts).map((text) => {
    const prefix = parsePrefix(text)
    return { prefix, text: formatPrefix(prefix) }
  }),
)

/** The blocks of a member, from an object that does not change. Throws InvalidAddressError. */
export const blockPrefixes = remembered((blocks: Readonly<Record<string, string>>): readonly Prefix[] =>
  Object.values(blocks).map((text) => parsePrefix(text)),
)

/** Required ranges of the machines of a member, from its own list of addresses and CIDRs. */
export const machineRanges = remembered((texts: readonly string[]): readonly NeededRange[] =>
  neededRanges(texts, 'in use by machines'),
)

/** Addresses at which a gateway is called, from the candidates of its Endpoint. Only IPv4 is used. */
export const candidateRanges = remembered((candidates: readonly Candidate[]): readonly NeededRange[] =>
  neededRanges(ipv4Among(candidates.map(({ address }) => address)), 'a gateway'),
)

/** Caches the result as long as the argument is referenced. The argument must not change. */
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

// The order in which address ranges were stated. The first member that states a range keeps its addresses: a Service
// range that another member states later over it only affects that member. The order is kept in the members' rows
// (`claimed`, see orderClaims() in address-claims.ts). Pure.

/** By CIDR as formatPrefix() writes it. Ranges that are absent were stated before all others. */
export type ClaimOrder = Readonly<Record<string, number>>

export interface OrderedClaim {
  readonly order: number
  /** Index of the cluster: decides between two claims of the same order. */
  readonly index: number
}

/** The order of a range that is absent. */
export const STATED_FIRST = -1

export function orderOf(prefix: Prefix, claimed: ClaimOrder = {}): number {
  return claimed[formatPrefix(prefix)] ?? STATED_FIRST
}

export function isEarlier(one: OrderedClaim, other: OrderedClaim): boolean {
  return one.order === other.order ? one.index < other.index : one.order < other.order
}
