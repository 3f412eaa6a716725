/** Compares what nft lists with what was sent: finds what others changed in our table. Pure. */
import type { NftElement, NftStatement } from '../kernel/nft-transaction.ts'
import type { ElementChange } from './balance-elements.ts'

/** Names of the maps and sets, and how many rules each chain has. */
export interface TableShape {
  readonly maps: ReadonlySet<string>
  readonly rules: ReadonlyMap<string, number>
}

/** The shape that these statements leave, sent to an empty table. */
export function shapeOf(statements: readonly NftStatement[], before?: TableShape): TableShape {
  const maps = new Set(before?.maps)
  const rules = new Map(before?.rules)
  for (const statement of statements) {
    if (statement.verb === 'add-map') maps.add(statement.map)
    if (statement.verb === 'add-chain') rules.set(statement.chain, rules.get(statement.chain) ?? 0)
    if (statement.verb === 'add-rule') rules.set(statement.chain, (rules.get(statement.chain) ?? 0) + 1)
  }
  return { maps, rules }
}

/** Reads the shape from the text of `nft list table`. */
export function parseShape(listing: string): TableShape {
  const maps = new Set<string>()
  const rules = new Map<string, number>()
  let chain: string | undefined
  for (const line of listing.split('\n')) {
    const head = /^\t(map|set|chain) (\S+) \{$/.exec(line)
    if (head !== null) {
      chain = head[1] === 'chain' ? head[2] : undefined
      if (chain === undefined) maps.add(head[2] ?? '')
      else rules.set(chain, 0)
    } else if (line === '\t}') chain = undefined
    else if (chain !== undefined && line.startsWith('\t\t') && !line.startsWith('\t\ttype ')) {
      rules.set(chain, (rules.get(chain) ?? 0) + 1)
    }
  }
  return { maps, rules }
}

export function sameShape(a: TableShape, b: TableShape): boolean {
  return (
    a.maps.size === b.maps.size &&
    a.rules.size === b.rules.size &&
    [...a.maps].every((map) => b.maps.has(map)) &&
    [...a.rules].every(([chain, count]) => b.rules.get(chain) === count)
  )
}

/** What has to be done to one map; undefined when it is as desired. */
export function elementRepair(
  map: string,
  desired: ReadonlyMap<string, string | undefined>,
  observed: readonly NftElement[],
): ElementChange | undefined {
  const remove: string[] = []
  const right = new Set<string>()
  for (const { key, value } of observed) {
    if (desired.has(key) && desired.get(key) === value) right.add(key)
    else remove.push(key)
  }
  const add: NftElement[] = []
  for (const [key, value] of desired) {
    if (!right.has(key)) add.push(value === undefined ? { key } : { key, value })
  }
  return remove.length === 0 && add.length === 0 ? undefined : { map, remove, add }
}
