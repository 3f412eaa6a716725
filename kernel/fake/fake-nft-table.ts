/** What a table of the fake holds, and how it prints: nft's layout, everything sorted, so that texts compare. */
import { InvalidAddressError, addressBits, familyOf, parseAddress } from '../../model/addresses/addresses.ts'
import {
  type NftBaseChain,
  type NftElement,
  type NftFamily,
  type NftMapType,
  formatBase,
  formatMapType,
  formatRule,
} from '../nft/nft.ts'
import { usualAddress } from '../route/route.ts'

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

// Elements of the fake's sets and maps: whether they fit the type, and the form in which nft lists them.

/** The element as it is listed. Gives text, the reason, when the kernel or nft would refuse it. */
export function listedElement({ key, value }: NftElement, type: NftMapType): NftElement | string {
  if ((value === undefined) !== (type.value === undefined)) {
    return type.value === undefined ? 'a set has no values' : 'the value is missing'
  }
  try {
    const listed = listedParts(key, type.key)
    if (value === undefined || type.value === undefined) return { key: listed }
    return { key: listed, value: listedParts(value, type.value) }
  } catch (error) {
    if (error instanceof InvalidAddressError || error instanceof WrongShape) return error.message
    throw error
  }
}

/** The key alone, for a deletion, which does not look at the value. Gives the key as it came when it does not fit. */
export function listedKey(key: string, type: NftMapType): string {
  try {
    return listedParts(key, type.key)
  } catch (error) {
    if (error instanceof InvalidAddressError || error instanceof WrongShape) return key
    throw error
  }
}

class WrongShape extends Error {}

function listedParts(text: string, type: string): string {
  const parts = text.split(' . ')
  const types = type.split(' . ')
  if (parts.length !== types.length) throw new WrongShape(`invalid data type, expected ${type}`)
  return parts.map((part, i) => listedPart(part, types[i] ?? '')).join(' . ')
}

function listedPart(text: string, type: string): string {
  if (type === 'ipv4_addr' && familyOf(text) === 6) throw new WrongShape('Address family for hostname not supported')
  return type === 'ipv6_addr' ? listedIpv6(text) : text
}

/** An address, a prefix or a range. A prefix that is one address is listed as that. */
function listedIpv6(text: string): string {
  const [from = '', to] = text.split('-')
  const [address = '', length] = from.split('/')
  for (const end of to === undefined ? [address] : [address, to]) {
    if (familyOf(end) !== 6) throw new WrongShape('Address family for hostname not supported')
  }
  const listed = usualAddress(address)
  if (to !== undefined) return `${listed}-${usualAddress(to)}`
  return length === undefined || length === '128' ? listed : `${listed}/${length}`
}

// Intervals of ipv4_addr and ipv6_addr sets: whether a key overlaps one that is there. Keys of other types never do.

interface Interval {
  readonly low: bigint
  readonly high: bigint
}

/** The key that overlaps, or undefined. */
export function overlappingInterval(map: FakeNftMap, key: string): string | undefined {
  if (map.type.key !== 'ipv4_addr' && map.type.key !== 'ipv6_addr') return undefined
  const wanted = interval(key)
  for (const other of map.elements.keys()) {
    const present = interval(other)
    if (present.low <= wanted.high && wanted.low <= present.high) return other
  }
  return undefined
}

/** Whether the address lies in the element's interval. */
export function intervalContains(key: string, address: string): boolean {
  const { family, value } = parseAddress(address)
  if (familyOf(key) !== family) return false
  const { low, high } = interval(key)
  return low <= value && value <= high
}

/** An address, a prefix or a range: `a.b.c.d-e.f.g.h`. */
function interval(key: string): Interval {
  const [from = '', to] = key.split('-')
  if (to !== undefined) return { low: parseAddress(from).value, high: parseAddress(to).value }
  const [address = '', length] = key.split('/')
  const parsed = parseAddress(address)
  const size = 1n << BigInt(addressBits(parsed.family) - Number(length ?? addressBits(parsed.family)))
  return { low: parsed.value, high: parsed.value + size - 1n }
}
