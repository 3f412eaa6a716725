/**
 * Address ranges of members as numbers. A row of the log is replaced and never altered, so each list is read once: when
 * one of a thousand members joins, those of the others are the same as before.
 */
import { type Prefix, formatPrefix, ipv4Among, parsePrefix } from '../../model/addresses/ip.ts'
import { type NeededRange, neededRanges } from '../../model/addresses/needed-ranges.ts'

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
