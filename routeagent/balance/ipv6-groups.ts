/**
 * IPv6 addresses as their eight groups, for the same reason as IPv4 addresses are numbers. Everything that is not hot
 * uses model/addresses/ip.ts. Pure.
 */
import { type Prefix, addressBits } from '../../model/addresses/ip.ts'

export type Ipv6Groups = readonly number[]

/** Undefined unless the text is that of RFC 4291 section 2.2, without a dotted quad at its end and without a zone. */
export function ipv6Groups(text: string): Ipv6Groups | undefined {
  const groups: number[] = []
  /** Where `::` is, as a number of groups. */
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

/** As nft prints it: RFC 5952. */
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
 * Whether a pod may have this address: not loopback, link-local or multicast, and none that is a form of an IPv4
 * address (IPv4-mapped, IPv4-compatible, NAT64).
 */
export function isUsableIpv6([first = 0, second = 0]: Ipv6Groups): boolean {
  const standsForIpv4 = first === 0x64 && second === 0xff9b
  return first !== 0 && !standsForIpv4 && first < 0xff00 && (first & 0xffc0) !== 0xfe80
}

/** Whether groups are in the network. Takes an IPv6 prefix. */
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

/** -1 where there is none. */
function hexDigit(text: string, at: number): number {
  const code = text.charCodeAt(at)
  if (code >= 0x30 && code <= 0x39) return code - 0x30
  // The same letter in lower case.
  const letter = code | 0x20
  return letter >= 0x61 && letter <= 0x66 ? letter - 0x61 + 10 : -1
}

/** The first of the longest runs; nowhere, unless there are two zeros in a row. */
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
