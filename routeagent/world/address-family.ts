/** What differs between the families in the plans of a node: words of nft, and parsing of addresses. Pure. */
import type { NftFamily } from '../../kernel/nft/nft.ts'
import { type Family, type Prefix, addressBits, classifyAddress, prefixSize } from '../../model/addresses/addresses.ts'

// IPv4 addresses as plain numbers. Creating the table parses tens of thousands of backends, and big integers would be
// most of that work. Other code uses model/values/ip.ts. Pure.

/** Undefined unless the text is a dotted quad in canonical form. */
export function ipv4Number(text: string): number | undefined {
  let value = 0
  let part = 0
  let digits = 0
  let dots = 0
  for (let i = 0; i <= text.length; i++) {
    const code = i === text.length ? DOT : text.charCodeAt(i)
    if (code === DOT) {
      if (digits === 0 || part > 255) return undefined
      value = value * 256 + part
      dots += 1
      part = 0
      digits = 0
    } else {
      if (code < ZERO || code > NINE || (digits > 0 && part === 0)) return undefined
      part = part * 10 + (code - ZERO)
      digits += 1
      if (digits > 3) return undefined
    }
  }
  return dots === 4 ? value : undefined
}

/** Whether a pod may have this address: not loopback, link-local, multicast and the like. */
export function isUsableIpv4(value: number): boolean {
  return (
    !SPECIAL_FIRST_OCTETS.has(Math.floor(value / 2 ** 24)) ||
    classifyAddress({ family: 4, value: BigInt(value) }) === 'usable'
  )
}

interface Ipv4Range {
  readonly low: number
  readonly high: number
}

/** The first and last address of an IPv4 prefix. */
export function ipv4Range(prefix: Prefix): Ipv4Range {
  return { low: Number(prefix.value), high: Number(prefix.value + prefixSize(prefix)) - 1 }
}

export function inRange(range: Ipv4Range, value: number): boolean {
  return value >= range.low && value <= range.high
}

const DOT = 0x2e
const ZERO = 0x30
const NINE = 0x39
/** First octets of the networks that contain unusable addresses. All other addresses need no further check. */
const SPECIAL_FIRST_OCTETS: ReadonlySet<number> = new Set([
  0,
  127,
  169,
  255,
  ...Array.from({ length: 16 }, (_, i) => 224 + i),
])

// IPv6 addresses as their eight groups, for the same reason. Other code uses model/values/ip.ts. Pure.

type Ipv6Groups = readonly number[]

/**
 * Undefined unless the text has the form of RFC 4291 section 2.2, without a dotted quad at its end and without a zone.
 */
export function ipv6Groups(text: string): Ipv6Groups | undefined {
  const groups: number[] = []
  /** Position of `::` as a number of groups. */
  let gap = text.startsWith('::') ? 0 : -1
  let at = gap === 0 ? 2 : 0
  while (at < text.length) {
    const start = at
    let value = 0
    for (let digit = hexDigit(text, at); digit >= 0; digit = hexDigit(text, ++at)) value = value * 16 + digit
    if (at === start || at > start + 4) return undefined
    groups.push(value)
    if (at === text.length) break
    if (text.charCodeAt(at) !== COLON || ++at === text.length) return undefined
    if (text.charCodeAt(at) !== COLON) continue
    if (gap >= 0) return undefined
    gap = groups.length
    at += 1
  }
  const missing = GROUPS - groups.length
  if (gap < 0) return missing === 0 ? groups : undefined
  if (missing < 1) return undefined
  return [...groups.slice(0, gap), ...ZEROS.slice(0, missing), ...groups.slice(gap)]
}

/** The address in the form that nft prints: RFC 5952. */
export function formatGroups(groups: Ipv6Groups): string {
  const { from, length } = longestZeros(groups)
  let text = ''
  for (let i = 0; i < GROUPS;) {
    if (i === from) {
      text += '::'
      i += length
      continue
    }
    if (i > 0 && i !== from + length) text += ':'
    text += (groups[i] ?? 0).toString(16)
    i += 1
  }
  return text
}

/**
 * Whether a pod may have this address: not loopback, link-local or multicast, and not a form of an IPv4 address
 * (IPv4-mapped, IPv4-compatible, NAT64).
 */
export function isUsableIpv6([first = 0, second = 0]: Ipv6Groups): boolean {
  const standsForIpv4 = first === 0x64 && second === 0xff9b
  return first !== 0 && !standsForIpv4 && first < 0xff00 && (first & 0xffc0) !== 0xfe80
}

/** Returns a function that tells whether groups are in the network. Takes an IPv6 prefix. */
export function ipv6Network(prefix: Prefix): (groups: Ipv6Groups) => boolean {
  const shift = (i: number): bigint => BigInt(addressBits(6) - 16 * (i + 1))
  const network = Array.from({ length: GROUPS }, (_, i) => Number((prefix.value >> shift(i)) & 0xffffn))
  const whole = Math.floor(prefix.length / 16)
  const rest = 16 - (prefix.length % 16)
  return (groups) => {
    for (let i = 0; i < whole; i++) if (groups[i] !== network[i]) return false
    return rest === 16 || (groups[whole] ?? 0) >> rest === (network[whole] ?? 0) >> rest
  }
}

const GROUPS = 8
const ZEROS: Ipv6Groups = new Array<number>(GROUPS).fill(0)
const COLON = 0x3a

/** Value of the hexadecimal digit at this position. -1 if there is none. */
function hexDigit(text: string, at: number): number {
  const code = text.charCodeAt(at)
  if (code >= 0x30 && code <= 0x39) return code - 0x30
  // Converts a letter to lower case.
  const letter = code | 0x20
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x61 + 10 : -1
}

/** The first of the longest runs of zeros. `from` is -1 unless there are two zeros in a row. */
function longestZeros(groups: Ipv6Groups): { readonly from: number; readonly length: number } {
  let best = { from: -1, length: 1 }
  for (let from = 0; from < groups.length;) {
    let length = 0
    while (groups[from + length] === 0) length += 1
    if (length > best.length) best = { from, length }
    from += length + 1
  }
  return best
}

export interface AddressFamily {
  readonly family: Family
  /** Family of the table, and the first word of a match, as in `ip6 daddr`. */
  readonly nft: NftFamily
  /** Type of an address in maps and sets. */
  readonly type: 'ipv4_addr' | 'ipv6_addr'
  /** EndpointSlice.addressType of this family. */
  readonly slices: 'IPv4' | 'IPv6'
  /** How nft refuses a packet to an address that no service has. */
  readonly unreachable: string
  /** The address in the form that nft prints. Undefined for a text that is no address of this family. */
  canonical(text: string): string | undefined
  /**
   * Like canonical(), but also undefined for addresses that no pod may have: loopback, link-local, multicast and the
   * like.
   */
  podAddress(text: string): string | undefined
  /** Returns a function that tells whether one of these prefixes, all of this family, contains an address. */
  within(prefixes: readonly Prefix[]): (text: string) => boolean
}

const IPV4: AddressFamily = {
  family: 4,
  nft: 'ip',
  type: 'ipv4_addr',
  slices: 'IPv4',
  unreachable: 'icmp type host-unreachable',
  // A dotted quad has only one form.
  canonical: (text) => (ipv4Number(text) === undefined ? undefined : text),
  podAddress(text) {
    const value = ipv4Number(text)
    return value !== undefined && isUsableIpv4(value) ? text : undefined
  },
  within(prefixes) {
    const ranges = prefixes.map(ipv4Range)
    return (text) => {
      const value = ipv4Number(text)
      return value !== undefined && ranges.some((range) => inRange(range, value))
    }
  },
}

const IPV6: AddressFamily = {
  family: 6,
  nft: 'ip6',
  type: 'ipv6_addr',
  slices: 'IPv6',
  unreachable: 'icmpv6 type addr-unreachable',
  canonical(text) {
    const groups = ipv6Groups(text)
    return groups === undefined ? undefined : formatGroups(groups)
  },
  podAddress(text) {
    const groups = ipv6Groups(text)
    return groups !== undefined && isUsableIpv6(groups) ? formatGroups(groups) : undefined
  },
  within(prefixes) {
    const networks = prefixes.map(ipv6Network)
    return (text) => {
      const groups = ipv6Groups(text)
      return groups !== undefined && networks.some((holds) => holds(groups))
    }
  },
}

export function addressFamily(family: Family): AddressFamily {
  return family === 4 ? IPV4 : IPV6
}
