/** The elements of a planned table. Pure. */
import type { ElementMaps, NftStatement } from '../../../kernel/nft/nft.ts'

/** What the statements add to maps and sets, by their names. */
export function elementsOf(statements: readonly NftStatement[]): ElementMaps {
  const elements = new Map<string, ReadonlyMap<string, string | undefined>>()
  for (const one of statements) {
    if (one.verb === 'add-elements') elements.set(one.map, new Map(one.elements.map(({ key, value }) => [key, value])))
  }
  return elements
}
