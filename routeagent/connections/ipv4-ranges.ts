/** Many IPv4 addresses, looked up many times: as plain numbers, in the order of the addresses. Pure. */
import { type Prefix, addressBits, ofFamily } from '../../model/addresses/ip.ts'
import { aggregate } from '../../model/addresses/prefix-set.ts'

export class Ipv4Ranges {
  /** Of each range, none of which overlaps another: the first and the last address. */
  readonly #first: readonly number[]
  readonly #last: readonly number[]

  /** IPv6 prefixes are passed over. */
  constructor(prefixes: readonly Prefix[]) {
    const disjoint = aggregate(ofFamily(prefixes, 4))
    const sorted = disjoint.map((prefix) => ({ first: Number(prefix.value), length: prefix.length }))
    sorted.sort((a, b) => a.first - b.first)
    this.#first = sorted.map(({ first }) => first)
    this.#last = sorted.map(({ first, length }) => first + 2 ** (addressBits(4) - length) - 1)
  }

  /** The address as a number, 0 to 2^32 - 1. */
  has(address: number): boolean {
    let [low, high] = [0, this.#first.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#first[middle] ?? 0) <= address) low = middle + 1
      else high = middle
    }
    return low > 0 && address <= (this.#last[low - 1] ?? -1)
  }
}
