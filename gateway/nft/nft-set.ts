/** Values as the right side of a match: one as it is, several as a set. Pure. */
import { type Prefix, formatPrefix } from '../../model/addresses/ip.ts'
import { withoutContained } from '../../model/addresses/prefix-set.ts'

/** As one prefix, or as a set of those that none of the others contains. */
export function prefixSet(prefixes: readonly Prefix[]): string {
  return nftSet(withoutContained(prefixes).map(formatPrefix))
}

/** The only one as it is. */
export function nftSet(items: readonly string[]): string {
  return items.length === 1 ? (items[0] ?? '') : `{ ${[...items].join(', ')} }`
}
