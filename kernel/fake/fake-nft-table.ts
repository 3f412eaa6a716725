/**
 * Contents of a table of the fake, and how it is printed: in the layout of nft, with sorted items so that texts can be
 * compared.
 */
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
  /** Chains that the rule jumps or goes to, and maps and sets that it refers to. */
  readonly targets: readonly string[]
  readonly maps: readonly string[]
  /** Named counters that the rule refers to. */
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
  /** What rules have counted for elements. */
  readonly counted: Map<string, { readonly packets: number; readonly bytes: number }>
}

export interface FakeNftTable {
  readonly name: string
  readonly chains: Map<string, FakeNftChain>
  readonly maps: Map<string, FakeNftMap>
  /** Packet count of each counter. */
  readonly counters: Map<string, number>
  /** How many rules and verdicts refer to each chain, and how many rules refer to each map. */
  readonly chainUse: Map<string, number>
  readonly mapUse: Map<string, number>
}

export function newTable(name: string): FakeNftTable {
  return { name, chains: new Map(), maps: new Map(), counters: new Map(), chainUse: new Map(), mapUse: new Map() }
}

/** The text ends with a newline, as a listing of nft does. */
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

// Elements of the sets and maps of the fake: whether they fit the type, and the form in which nft lists them.

/** Returns the element as nft lists it, or the reason as text if the kernel or nft would refuse it. */
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

/**
 * Returns only the key, for a deletion, which ignores the value. Returns the key unchanged if it does not fit the type.
 */
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

/** Accepts an address, a prefix or a range. A prefix of one address is listed as an address. */
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

// Intervals of ipv4_addr and ipv6_addr sets: whether a key overlaps an existing one. Keys of other types never overlap.

interface Interval {
  readonly low: bigint
  readonly high: bigint
}

/** Returns the key that overlaps, or undefined. */
export function overlappingInterval(map: FakeNftMap, key: string): string | undefined {
  if (map.type.key !== 'ipv4_addr' && map.type.key !== 'ipv6_addr') return undefined
  const wanted = interval(key)
  for (const other of map.elements.keys()) {
    const present = interval(other)
    if (present.low <= wanted.high && wanted.low <= present.high) return other
  }
  return undefined
}

/** True if the interval of the element contains the address. */
export function intervalContains(key: string, address: string): boolean {
  const { family, value } = parseAddress(address)
  if (familyOf(key) !== family) return false
  const { low, high } = interval(key)
  return low <= value && value <= high
}

/** Parses an address, a prefix or a range such as `a.b.c.d-e.f.g.h`. */
function interval(key: string): Interval {
  const [from = '', to] = key.split('-')
  if (to !== undefined) return { low: parseAddress(from).value, high: parseAddress(to).value }
  const [address = '', length] = key.split('/')
  const parsed = parseAddress(address)
  const size = 1n << BigInt(addressBits(parsed.family) - Number(length ?? addressBits(parsed.family)))
  return { low: parsed.value, high: parsed.value + size - 1n }
}
