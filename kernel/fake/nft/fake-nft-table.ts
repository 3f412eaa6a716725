/** What a table of the fake holds, and how it prints: nft's layout, everything sorted, so that texts compare. */
import { formatBase, formatMapType, formatRule } from '../../nft/format-nft.ts'
import type { NftBaseChain, NftFamily, NftMapType } from '../../nft/nft-transaction.ts'

export interface FakeNftRule {
  readonly rule: string
  readonly comment?: string
  /** Chains that the rule jumps or goes to, and maps that it looks into. */
  readonly targets: readonly string[]
  readonly maps: readonly string[]
  /** Named counters that it counts with. */
  readonly counters: readonly string[]
}

export interface FakeNftChain {
  readonly name: string
  readonly base?: NftBaseChain
  rules: FakeNftRule[]
}

export interface FakeNftMap {
  readonly name: string
  readonly type: NftMapType
  readonly elements: Map<string, string | undefined>
}

export interface FakeNftTable {
  readonly name: string
  readonly chains: Map<string, FakeNftChain>
  readonly maps: Map<string, FakeNftMap>
  /** Packets by counter. */
  readonly counters: Map<string, number>
  /** How often each chain is the target of a rule or of a verdict, and each map is used in a rule. */
  readonly chainUse: Map<string, number>
  readonly mapUse: Map<string, number>
}

export function newTable(name: string): FakeNftTable {
  return { name, chains: new Map(), maps: new Map(), counters: new Map(), chainUse: new Map(), mapUse: new Map() }
}

/** Ends with a newline, as nft's own listing does. */
export function printTable(table: FakeNftTable, family: NftFamily): string {
  const counters = [...table.counters.keys()].sort().map((name) => `\tcounter ${name} {\n\t}\n`)
  const blocks = [...counters, ...byName(table.maps).map(printMap), ...byName(table.chains).map(printChain)]
  return `table ${family} ${table.name} {\n${blocks.join('\n')}}\n`
}

function printMap(map: FakeNftMap): string {
  const type = formatMapType(map.type)
    .split('; ')
    .map((part) => `\t\t${part.replace(/;$/, '')}\n`)
    .join('')
  const elements = [...map.elements]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => (value === undefined ? key : `${key} : ${value}`))
  const list = elements.length === 0 ? '' : `\t\telements = { ${elements.join(',\n\t\t\t     ')} }\n`
  return `\t${map.type.kind} ${map.name} {\n${type}${list}\t}\n`
}

function printChain(chain: FakeNftChain): string {
  const base = chain.base === undefined ? '' : `\t\t${formatBase(chain.base)}\n`
  const rules = chain.rules.map((rule) => `\t\t${formatRule(rule.rule, rule.comment)}\n`).join('')
  return `\tchain ${chain.name} {\n${base}${rules}\t}\n`
}

function byName<T extends { readonly name: string }>(items: ReadonlyMap<string, T>): T[] {
  return [...items.values()].sort((a, b) => (a.name < b.name ? -1 : 1))
}
