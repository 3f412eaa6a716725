/**
 * Allocates blocks and single addresses of a range. Pure: the caller stores the claims, and asks only for what has no
 * claim yet. The same range, claims and hint always give the same answer.
 */
import {
  type Address,
  type Prefix,
  addressBits,
  containsPrefix,
  formatPrefix,
  overlaps,
  prefixSize,
} from '../values/values.ts'
import { comparePrefixes } from './prefix-set.ts'

/** No free block or address is left in the range. */
export class PoolFullError extends Error {
  static readonly code = 'POOL_FULL'
  readonly range: string
  constructor(range: Prefix, wanted: string) {
    super(
      `address range ${formatPrefix(range)} is full: no ${wanted} is free; release some or configure a larger range`,
    )
    this.name = 'PoolFullError'
    this.range = formatPrefix(range)
  }
}

/**
 * Returns the lowest block of `length` bits inside `range` that overlaps none of `taken`. Claims outside the range are
 * ignored. Throws RangeError when the range cannot contain such a block, PoolFullError when none is free.
 */
export function allocateBlock(range: Prefix, length: number, taken: readonly Prefix[]): Prefix {
  const bits = addressBits(range.family)
  if (!Number.isInteger(length) || length < range.length || length > bits) {
    throw new RangeError(`block length /${length} in ${formatPrefix(range)}: expected /${range.length} to /${bits}`)
  }
  const size = 1n << BigInt(bits - length)
  const end = range.value + prefixSize(range)
  let candidate: Prefix = { family: range.family, value: range.value, length }
  for (const claim of claimsWithin(range, taken)) {
    if (candidate.value >= end) break
    if (!overlaps(claim, candidate)) {
      if (claim.value > candidate.value) return candidate
      continue
    }
    candidate = { ...candidate, value: roundUp(claim.value + prefixSize(claim), size) }
  }
  if (candidate.value >= end) throw new PoolFullError(range, `/${length} block`)
  return candidate
}

/**
 * Returns a free address of `range`, never its first or last. The search starts at an offset that depends on `hint`
 * alone, so a caller with the same hint (say, a service that is exported again) usually gets the same address. Throws
 * RangeError when the range has no usable address, PoolFullError when all are taken.
 */
export function allocateAddress(range: Prefix, taken: (address: Address) => boolean, hint: string): Address {
  const usable = prefixSize(range) - 2n
  if (usable <= 0n) throw new RangeError(`range ${formatPrefix(range)}: expected at least four addresses`)
  const start = hash64(hint) % usable
  for (let step = 0n; step < usable; step += 1n) {
    const address: Address = { family: range.family, value: range.value + 1n + ((start + step) % usable) }
    if (!taken(address)) return address
  }
  throw new PoolFullError(range, 'address')
}

/**
 * Returns the claims that overlap the range, sorted by first address; of two with the same first address, the larger
 * comes first.
 */
function claimsWithin(range: Prefix, taken: readonly Prefix[]): Prefix[] {
  return taken.filter((claim) => containsPrefix(range, claim) || containsPrefix(claim, range)).sort(comparePrefixes)
}

function roundUp(value: bigint, size: bigint): bigint {
  return ((value + size - 1n) / size) * size
}

/** FNV-1a with 64 bits: it distributes names well and needs no library. */
function hash64(text: string): bigint {
  let hash = 0xcbf29ce484222325n
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n)
  }
  return hash
}
