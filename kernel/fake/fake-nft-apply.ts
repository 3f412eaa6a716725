/**
 * Applies one statement to the tables of the fake. Each change adds a function that undoes it, so that a transaction
 * that fails midway, or is only checked, has no effect.
 */
import { KernelError, type KernelErrorCode } from '../kernel.ts'
import { type NftElement, type NftFamily, type NftStatement, formatMapType, formatStatement } from '../nft/nft.ts'
import {
  type FakeNftChain,
  type FakeNftMap,
  type FakeNftRule,
  type FakeNftTable,
  listedElement,
  listedKey,
  newTable,
  overlappingInterval,
} from './fake-nft-table.ts'
import { rejectFault } from './fake-nft-rule.ts'

export type Undo = () => void
/** The types of statement with one of these verbs. */
type Of<V extends NftStatement['verb'], S = NftStatement> = S extends { readonly verb: infer W }
  ? [Extract<W, V>] extends [never]
    ? never
    : S
  : never

/** Throws the KernelError that the kernel would report. `undo` then contains the changes made before the failure. */
export function applyStatement(
  tables: Map<string, FakeNftTable>,
  statement: NftStatement,
  undo: Undo[],
  family: NftFamily,
): void {
  try {
    if (statement.verb === 'add-rule') refuseWords(statement, family)
    apply(tables, statement, undo)
  } catch (error) {
    if (!(error instanceof Refusal)) throw error
    throw new KernelError(error.code, `nft ${shortText(error.statement, family)}`, error.message)
  }
}

/** A keyword of the other family makes a rule invalid for nft. */
const FOREIGN_WORDS: Readonly<Record<NftFamily, RegExp>> = {
  ip: /(?<!\S)(?<!protocol )ip6(?!\S)|reject with icmpv6/,
  ip6: /(?<!\S)(?<!protocol )ip(?!\S)|reject with icmp(?!\S)/,
}

/** An error of the kernel before its statement is formatted for a family. */
class Refusal extends Error {
  readonly code: KernelErrorCode
  readonly statement: NftStatement
  constructor(code: KernelErrorCode, statement: NftStatement, detail: string) {
    super(detail)
    this.code = code
    this.statement = statement
  }
}

function apply(tables: Map<string, FakeNftTable>, statement: NftStatement, undo: Undo[]): void {
  if (statement.verb === 'add-table') {
    if (!tables.has(statement.table)) put(tables, statement.table, newTable(statement.table), undo)
    return
  }
  const table = tables.get(statement.table)
  if (table === undefined) throw refuse('ENOENT', statement, `no table ${statement.table}`)
  switch (statement.verb) {
    case 'delete-table': {
      remove(tables, statement.table, undo)
      return
    }
    case 'flush-table':
      for (const chain of table.chains.values()) flushChain(table, chain, undo)
      return
    case 'add-chain': {
      addChain(table, statement, undo)
      return
    }
    case 'flush-chain': {
      flushChain(table, needChain(table, statement), undo)
      return
    }
    case 'delete-chain': {
      deleteChain(table, statement, undo)
      return
    }
    case 'add-rule': {
      addRule(table, statement, undo)
      return
    }
    case 'add-counter': {
      if (!table.counters.has(statement.counter)) put(table.counters, statement.counter, 0, undo)
      return
    }
    case 'add-map': {
      addMap(table, statement, undo)
      return
    }
    case 'flush-map': {
      flushMap(table, needMap(table, statement), undo)
      return
    }
    case 'delete-map': {
      deleteMap(table, statement, undo)
      return
    }
    case 'add-elements': {
      addElements(table, statement, undo)
      return
    }
    case 'delete-elements': {
      deleteElements(table, statement, undo)
      return
    }
  }
}

function addChain(table: FakeNftTable, statement: Of<'add-chain'>, undo: Undo[]): void {
  const existing = table.chains.get(statement.chain)
  if (existing !== undefined) {
    if (statement.base === undefined || sameBase(existing, statement)) return
    throw refuse('EOPNOTSUPP', statement, 'the chain exists with another hook or priority')
  }
  const base = statement.base === undefined ? {} : { base: statement.base }
  put(table.chains, statement.chain, { name: statement.chain, ...base, rules: [] }, undo)
}

function sameBase(existing: FakeNftChain, statement: Of<'add-chain'>): boolean {
  const a = existing.base
  const b = statement.base
  return a?.type === b?.type && a?.hook === b?.hook && a?.priority === b?.priority
}

function flushChain(table: FakeNftTable, chain: FakeNftChain, undo: Undo[]): void {
  const before = chain.rules
  for (const rule of before) countRule(table, rule, -1, undo)
  chain.rules = []
  undo.push(() => {
    chain.rules = before
  })
}

function deleteChain(table: FakeNftTable, statement: Of<'delete-chain' | 'flush-chain'>, undo: Undo[]): void {
  const chain = needChain(table, statement)
  flushChain(table, chain, undo)
  if ((table.chainUse.get(chain.name) ?? 0) > 0) throw refuse('EBUSY', statement, 'the chain is still jumped to')
  remove(table.chains, chain.name, undo)
}

function addRule(table: FakeNftTable, statement: Of<'add-rule'>, undo: Undo[]): void {
  const chain = needChain(table, statement)
  const rule: FakeNftRule = {
    rule: statement.rule,
    ...(statement.comment === undefined ? {} : { comment: statement.comment }),
    targets: [...statement.rule.matchAll(/\b(?:goto|jump) ([A-Za-z_][\w.-]*)/g)].map((match) => match[1] ?? ''),
    counters: [...statement.rule.matchAll(/\bcounter name ([\w.-]+)/g)].map((match) => match[1] ?? ''),
    // `@th,32,16` and the like are raw payload expressions, not maps.
    maps: [...statement.rule.matchAll(/@([A-Za-z_][\w.-]*)(?![\w.,-])/g)].map((match) => match[1] ?? ''),
  }
  for (const target of rule.targets) needTarget(table, target, statement)
  for (const name of rule.counters) {
    if (!table.counters.has(name)) throw refuse('ENOENT', statement, `no counter ${name}`)
  }
  for (const map of rule.maps) if (!table.maps.has(map)) throw refuse('ENOENT', statement, `no map or set ${map}`)
  countRule(table, rule, 1, undo)
  const before = chain.rules
  chain.rules = [...before, rule]
  undo.push(() => {
    chain.rules = before
  })
}

function refuseWords(statement: Of<'add-rule'>, family: NftFamily): void {
  const words = statement.rule.replace(/"[^"]*"/g, '""')
  if (FOREIGN_WORDS[family].test(words))
    throw refuse('EINVAL', statement, `conflicting protocols specified: a rule of family ${family}`)
  const fault = rejectFault(words)
  if (fault !== undefined) throw refuse('EINVAL', statement, fault)
}

function addMap(table: FakeNftTable, statement: Of<'add-map'>, undo: Undo[]): void {
  const existing = table.maps.get(statement.map)
  if (existing !== undefined) {
    if (formatMapType(existing.type) === formatMapType(statement.type)) return
    throw refuse('EEXIST', statement, 'it exists with another type')
  }
  put(
    table.maps,
    statement.map,
    { name: statement.map, type: statement.type, elements: new Map(), counted: new Map() },
    undo,
  )
}

function flushMap(table: FakeNftTable, map: FakeNftMap, undo: Undo[]): void {
  const before = [...map.elements]
  for (const [, value] of before) countVerdict(table, map, value, -1, undo)
  map.elements.clear()
  undo.push(() => {
    for (const [key, value] of before) map.elements.set(key, value)
  })
}

function deleteMap(table: FakeNftTable, statement: Of<'delete-map' | 'flush-map'>, undo: Undo[]): void {
  const map = needMap(table, statement)
  if ((table.mapUse.get(map.name) ?? 0) > 0) throw refuse('EBUSY', statement, 'a rule still uses it')
  flushMap(table, map, undo)
  remove(table.maps, map.name, undo)
}

function addElements(table: FakeNftTable, statement: Of<'add-elements'>, undo: Undo[]): void {
  const map = needMap(table, statement)
  for (const element of statement.elements) {
    const listed = listedElement(element, map.type)
    if (typeof listed === 'string') throw refuseElement('EINVAL', statement, element, listed)
    const { key, value } = listed
    if (map.elements.has(key)) {
      if (map.elements.get(key) === value) continue
      throw refuseElement('EEXIST', statement, element, `it has the value ${map.elements.get(key) ?? ''}`)
    }
    const clash = map.type.flags?.includes('interval') === true ? overlappingInterval(map, key) : undefined
    if (clash !== undefined) throw refuseElement('EEXIST', statement, element, `interval overlaps with ${clash}`)
    const target = verdictTarget(map, value)
    if (target !== undefined) needTarget(table, target, statement)
    countVerdict(table, map, value, 1, undo)
    put(map.elements, key, value, undo)
  }
}

function deleteElements(table: FakeNftTable, statement: Of<'delete-elements'>, undo: Undo[]): void {
  const map = needMap(table, statement)
  for (const element of statement.elements) {
    const key = listedKey(element.key, map.type)
    if (!map.elements.has(key)) throw refuseElement('ENOENT', statement, element, 'no such element')
    countVerdict(table, map, map.elements.get(key), -1, undo)
    remove(map.elements, key, undo)
  }
}

function needTarget(table: FakeNftTable, target: string, statement: NftStatement): void {
  const chain = table.chains.get(target)
  if (chain === undefined) throw refuse('ENOENT', statement, `no chain ${target}`)
  if (chain.base !== undefined) throw refuse('EOPNOTSUPP', statement, `${target} is a base chain`)
}

function needChain(table: FakeNftTable, statement: Of<'flush-chain' | 'delete-chain' | 'add-rule'>): FakeNftChain {
  const chain = table.chains.get(statement.chain)
  if (chain === undefined) throw refuse('ENOENT', statement, `no chain ${statement.chain}`)
  return chain
}

function needMap(table: FakeNftTable, statement: Extract<NftStatement, { readonly map: string }>): FakeNftMap {
  const map = table.maps.get(statement.map)
  if (map === undefined) throw refuse('ENOENT', statement, `no map or set ${statement.map}`)
  return map
}

/** Returns the chain of `goto x` or `jump x` in a verdict map. */
function verdictTarget(map: FakeNftMap, value: string | undefined): string | undefined {
  if (map.type.value !== 'verdict' || value === undefined) return undefined
  return /^(?:goto|jump) (.+)$/.exec(value)?.[1]
}

function countVerdict(table: FakeNftTable, map: FakeNftMap, value: string | undefined, by: number, undo: Undo[]): void {
  const target = verdictTarget(map, value)
  if (target !== undefined) count(table.chainUse, target, by, undo)
}

function countRule(table: FakeNftTable, rule: FakeNftRule, by: number, undo: Undo[]): void {
  for (const target of rule.targets) count(table.chainUse, target, by, undo)
  for (const map of rule.maps) count(table.mapUse, map, by, undo)
}

function count(counts: Map<string, number>, name: string, by: number, undo: Undo[]): void {
  counts.set(name, (counts.get(name) ?? 0) + by)
  undo.push(() => counts.set(name, (counts.get(name) ?? 0) - by))
}

function put<V>(items: Map<string, V>, key: string, value: V, undo: Undo[]): void {
  items.set(key, value)
  undo.push(() => items.delete(key))
}

function remove<V>(items: Map<string, V>, key: string, undo: Undo[]): void {
  const before = items.get(key) as V
  items.delete(key)
  undo.push(() => items.set(key, before))
}

function refuse(code: KernelErrorCode, statement: NftStatement, detail: string): Refusal {
  return new Refusal(code, statement, detail)
}

function refuseElement(code: KernelErrorCode, statement: NftStatement, element: NftElement, detail: string): Refusal {
  return refuse(code, { ...statement, elements: [element] } as NftStatement, detail)
}

function shortText(statement: NftStatement, family: NftFamily): string {
  return formatStatement(statement, family).replaceAll('\n', ' ').slice(0, 400)
}
