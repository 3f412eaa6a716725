/** Addresses and prefixes as values: a family and a number. No other file uses the IP library. */
import ipaddr from 'ipaddr.js'

export type Family = 4 | 6
/** The order of families in every list and table. */
export const FAMILIES: readonly Family[] = [4, 6]

export interface Address {
  readonly family: Family
  readonly value: bigint
}

/** A network. The host bits of `value` are always zero. */
export interface Prefix extends Address {
  readonly length: number
}

export class InvalidAddressError extends Error {
  static readonly code = 'INVALID_ADDRESS'
  readonly field: string
  readonly value: string
  constructor(field: string, value: string, expected: string) {
    super(`${field} ${JSON.stringify(value.slice(0, 100))}: expected ${expected}`)
    this.name = 'InvalidAddressError'
    this.field = field
    this.value = value
  }
}

export function addressBits(family: Family): number {
  return family === 4 ? 32 : 128
}

const DOTTED_QUAD = /^(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})\.(0|[1-9]\d{0,2})$/

/** Parses a dotted quad or RFC 4291 text. Short IPv4 forms and zone ids are not allowed. Throws InvalidAddressError. */
export function parseAddress(text: string, field = 'address'): Address {
  const value = ipv4Value(text)
  if (value !== undefined) return { family: 4, value: BigInt(value) }
  if (text.includes(':') && !text.includes('%') && ipaddr.IPv6.isValid(text)) {
    return fromBytes(ipaddr.IPv6.parse(text).toByteArray())
  }
  throw new InvalidAddressError(field, text, 'an IPv4 or IPv6 address such as 10.42.0.7')
}

/** Parses an address of one family; undefined if the text is none. */
export function addressIn(text: string, family: FamilyName): Address | undefined {
  const address = addressOrNone(text)
  return address?.family === familyNumber(family) ? address : undefined
}

export function isAddress(text: string): boolean {
  return addressOrNone(text) !== undefined
}

function addressOrNone(text: string): Address | undefined {
  try {
    return parseAddress(text)
  } catch {
    return undefined
  }
}

/** Parses `address/length`; host bits must be zero. Throws InvalidAddressError. */
export function parsePrefix(text: string, field = 'prefix'): Prefix {
  const match = /^([^/]+)\/(0|[1-9]\d{0,2})$/.exec(text)
  if (match === null) throw new InvalidAddressError(field, text, 'a CIDR such as 10.42.0.0/16')
  const address = parseAddress(match[1] ?? '', field)
  const length = Number(match[2])
  if (length > addressBits(address.family)) {
    throw new InvalidAddressError(field, text, `a prefix length of at most ${addressBits(address.family)}`)
  }
  const prefix = prefixOf(address, length)
  if (prefix.value !== address.value) {
    throw new InvalidAddressError(field, text, `no host bits set, as in ${formatPrefix(prefix)}`)
  }
  return prefix
}

export function isPrefix(text: string): boolean {
  try {
    parsePrefix(text)
    return true
  } catch {
    return false
  }
}

export function prefixOf(address: Address, length: number): Prefix {
  const shift = BigInt(addressBits(address.family) - length)
  return { family: address.family, value: (address.value >> shift) << shift, length }
}

export function formatAddress(address: Address): string {
  if (address.family === 4) return ipv4Text(Number(address.value))
  return new ipaddr.IPv6(toBytes(address)).toRFC5952String()
}

export function formatPrefix(prefix: Prefix): string {
  return `${formatAddress(prefix)}/${prefix.length}`
}

export function containsAddress(prefix: Prefix, address: Address): boolean {
  return prefix.family === address.family && prefixOf(address, prefix.length).value === prefix.value
}

export function containsPrefix(outer: Prefix, inner: Prefix): boolean {
  return inner.length >= outer.length && containsAddress(outer, inner)
}

export function overlaps(a: Prefix, b: Prefix): boolean {
  return containsPrefix(a, b) || containsPrefix(b, a)
}

/** Number of addresses in the prefix. */
export function prefixSize(prefix: Prefix): bigint {
  return 1n << BigInt(addressBits(prefix.family) - prefix.length)
}

/** Compares by family (IPv4 before IPv6), then by number. It ignores the length of a prefix; see comparePrefixes(). */
export function compareAddresses(a: Address, b: Address): number {
  if (a.family !== b.family) return a.family - b.family
  return a.value < b.value ? -1 : a.value > b.value ? 1 : 0
}

/**
 * Returns the family of an address, a prefix or address/length: IPv6 if it contains a colon. The text must be valid
 * already, or only be displayed.
 */
export function familyOf(text: string): Family {
  return text.includes(':') ? 6 : 4
}

/** Returns the texts of one family, in their order. They must be valid already, or only be displayed. */
export function ipv4Among(texts: readonly string[]): string[] {
  return texts.filter((text) => familyOf(text) === 4)
}

export function ipv6Among(texts: readonly string[]): string[] {
  return texts.filter((text) => familyOf(text) === 6)
}

/** Returns the items of one family, in their order. */
export function ofFamily<T extends Address>(items: readonly T[], family: Family): T[] {
  return items.filter((item) => item.family === family)
}

/** Replaces the network part of an address: the same host in another network of the same length. */
export function translate(address: Address, from: Prefix, to: Prefix): Address {
  return { family: to.family, value: to.value + (address.value - from.value) }
}

export type AddressClass = 'unspecified' | 'loopback' | 'linkLocal' | 'multicast' | 'broadcast' | 'usable'

/**
 * Classifies an address by its permitted use. An IPv6 form that contains an IPv4 address is classified as that address.
 */
export function classifyAddress(address: Address): AddressClass {
  if (WITH_IPV4.some((prefix) => containsAddress(prefix, address)) && address.value > 1n) {
    return classifyAddress({ family: 4, value: address.value & 0xffffffffn })
  }
  for (const row of SPECIAL) if (containsAddress(row.prefix, address)) return row.is
  return 'usable'
}

/** Returns the first special network that overlaps the prefix; undefined when all of its addresses are usable. */
export function specialPart(
  prefix: Prefix,
): { readonly prefix: Prefix; readonly is: Exclude<AddressClass, 'usable'> } | undefined {
  return SPECIAL.find((row) => overlaps(row.prefix, prefix))
}

/** IPv4-mapped, IPv4-compatible (RFC 4291 section 2.5.5) and NAT64 (RFC 6052). */
const WITH_IPV4: readonly Prefix[] = ['::ffff:0:0/96', '::/96', '64:ff9b::/96'].map((text) => parsePrefix(text))

const SPECIAL: readonly { readonly prefix: Prefix; readonly is: Exclude<AddressClass, 'usable'> }[] = [
  { prefix: parsePrefix('0.0.0.0/8'), is: 'unspecified' },
  { prefix: parsePrefix('127.0.0.0/8'), is: 'loopback' },
  { prefix: parsePrefix('169.254.0.0/16'), is: 'linkLocal' },
  { prefix: parsePrefix('224.0.0.0/4'), is: 'multicast' },
  { prefix: parsePrefix('255.255.255.255/32'), is: 'broadcast' },
  { prefix: parsePrefix('::/128'), is: 'unspecified' },
  { prefix: parsePrefix('::1/128'), is: 'loopback' },
  { prefix: parsePrefix('fe80::/10'), is: 'linkLocal' },
  { prefix: parsePrefix('ff00::/8'), is: 'multicast' },
]

/** Parses IPv4 without the library, which is too slow: a broker parses the addresses of all members on every join. */
function ipv4Value(text: string): number | undefined {
  const match = DOTTED_QUAD.exec(text)
  if (match === null) return undefined
  let value = 0
  for (let i = 1; i <= 4; i += 1) {
    const octet = Number(match[i])
    if (octet > 255) return undefined
    value = value * 256 + octet
  }
  return value
}

function ipv4Text(value: number): string {
  return `${value >>> 24}.${(value >>> 16) & 0xff}.${(value >>> 8) & 0xff}.${value & 0xff}`
}

function fromBytes(bytes: readonly number[]): Address {
  return { family: 6, value: bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n) }
}

function toBytes(address: Address): number[] {
  return Array.from({ length: 16 }, (_, i) => Number((address.value >> BigInt(8 * (15 - i))) & 0xffn))
}

// Converts between the Kubernetes names of address families and the numbers used here.

export const FAMILY_NAMES = ['IPv4', 'IPv6'] as const
export type FamilyName = (typeof FAMILY_NAMES)[number]

export function familyNumber(name: FamilyName): Family {
  return name === 'IPv4' ? 4 : 6
}

export function familyName(family: Family): FamilyName {
  return family === 4 ? 'IPv4' : 'IPv6'
}
