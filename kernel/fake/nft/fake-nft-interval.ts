/**
 * Intervals of ipv4_addr and ipv6_addr sets: whether a key overlaps one that is there. Keys of other types never do.
 */
import { addressBits, familyOf, parseAddress } from '../../../model/addresses/ip.ts'
import type { FakeNftMap } from './fake-nft-table.ts'

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
