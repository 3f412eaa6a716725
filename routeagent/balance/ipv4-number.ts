/**
 * IPv4 addresses as plain numbers. Tens of thousands of backends are looked at when the table is made, and big
 * integers would be most of that work. Everything that is not hot uses model/addresses/ip.ts. Pure.
 */
import { type Prefix, classifyAddress, prefixSize } from '../../model/addresses/ip.ts'

/** Undefined unless the text is a dotted quad as one would print it. */
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

export interface Ipv4Range {
  readonly low: number
  readonly high: number
}

/** An IPv4 prefix. */
export function ipv4Range(prefix: Prefix): Ipv4Range {
  return { low: Number(prefix.value), high: Number(prefix.value + prefixSize(prefix)) - 1 }
}

export function inRange(range: Ipv4Range, value: number): boolean {
  return value >= range.low && value <= range.high
}

const DOT = 0x2e
const ZERO = 0x30
const NINE = 0x39
/** Only networks that begin with these have addresses that are not usable; asking about all others is not needed. */
const SPECIAL_FIRST_OCTETS: ReadonlySet<number> = new Set([
  0,
  127,
  169,
  255,
  ...Array.from({ length: 16 }, (_, i) => 224 + i),
])
