/** Compares what nft lists with what was sent: finds what others changed in our table. Pure. */
import type { DriftReason } from '../../kernel/drift.ts'
import type { NftElement, NftStatement } from '../../kernel/nft/nft-transaction.ts'
import { parseElements } from '../../kernel/nft/parse-nft.ts'
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

export interface TableListing {
  readonly shape: TableShape
  /** By name of the chain: its hook and rules as nft writes them, counters at zero. */
  readonly texts: ReadonlyMap<string, string>
  /** By name of the map or set. */
  readonly elements: ReadonlyMap<string, readonly NftElement[]>
}

/**
 * Reads the text of `nft list table`: one listing has everything, where one for each map would take that often as long.
 */
export function parseListing(listing: string): TableListing {
  const maps = new Set<string>()
  const rules = new Map<string, number>()
  const texts = new Map<string, string>()
  const elements = new Map<string, readonly NftElement[]>()
  for (const { kind, name, body } of blocks(listing)) {
    if (kind === 'chain') {
      rules.set(name, body.filter((line) => !line.startsWith('\t\ttype ')).length)
      texts.set(name, body.join('\n').replaceAll(/packets \d+ bytes \d+/g, 'packets 0 bytes 0'))
    } else {
      maps.add(name)
      elements.set(name, parseElements(body.join('\n')))
    }
  }
  return { shape: { maps, rules }, texts, elements }
}

interface Block {
  readonly kind: string
  readonly name: string
  readonly body: readonly string[]
}

function* blocks(listing: string): Generator<Block> {
  let open: { kind: string; name: string; body: string[] } | undefined
  for (const line of listing.split('\n')) {
    const head = open === undefined ? /^\t(map|set|chain) (\S+) \{$/.exec(line) : null
    if (head !== null) open = { kind: head[1] ?? '', name: head[2] ?? '', body: [] }
    else if (line === '\t}') {
      if (open !== undefined) yield open
      open = undefined
    } else open?.body.push(line)
  }
}

export function sameShape(a: TableShape, b: TableShape): boolean {
  return (
    a.maps.size === b.maps.size &&
    a.rules.size === b.rules.size &&
    [...a.maps].every((map) => b.maps.has(map)) &&
    [...a.rules].every(([chain, count]) => b.rules.get(chain) === count)
  )
}

/**
 * Whether the chains that were seen before still read the same. nft writes rules in its own way, so only its own
 * listings compare.
 */
export function sameTexts(before: ReadonlyMap<string, string>, now: ReadonlyMap<string, string>): boolean {
  return [...before].every(([chain, text]) => now.get(chain) === text)
}

/** So many are named. */
export const MAX_DIFFERENCES = 8

/** What others did to a table, in words: chains and maps that are missing, that read differently, that are new. */
export function differences(
  had: { readonly shape: TableShape; readonly texts: ReadonlyMap<string, string> },
  found: TableListing | undefined,
): { readonly reason: DriftReason; readonly items: readonly string[] } {
  if (found === undefined) return { reason: 'Missing', items: ['the whole table'] }
  const { shape, texts } = had
  const chains = [...shape.rules.keys()]
  const missing = [
    ...chains.filter((chain) => !found.shape.rules.has(chain)).map((name) => `chain ${name}`),
    ...[...shape.maps].filter((map) => !found.shape.maps.has(map)).map((name) => `map ${name}`),
  ]
  if (missing.length > 0) return { reason: 'Missing', items: missing.slice(0, MAX_DIFFERENCES) }
  const changed = chains.filter(
    (chain) =>
      found.shape.rules.get(chain) !== shape.rules.get(chain) ||
      (texts.has(chain) && texts.get(chain) !== found.texts.get(chain)),
  )
  const items = changed.map((name) => `chain ${name}`)
  if (items.length > 0) return { reason: 'Changed', items: items.slice(0, MAX_DIFFERENCES) }
  const foreign = [
    ...[...found.shape.rules.keys()].filter((name) => !shape.rules.has(name)).map((name) => `chain ${name}`),
    ...[...found.shape.maps].filter((name) => !shape.maps.has(name)).map((name) => `map ${name}`),
  ]
  return { reason: 'Foreign', items: foreign.slice(0, MAX_DIFFERENCES) }
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
