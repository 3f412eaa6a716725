/**
 * No block of the global range is left for somebody's pods: what was asked, what is free, and what can be done. Pure.
 */
import { allocateBlock } from '../../model/addresses/address-pool.ts'
import {
  type Prefix,
  addressBits,
  containsPrefix,
  formatPrefix,
  parsePrefix,
  prefixSize,
} from '../../model/addresses/ip.ts'

export interface MissingBlock {
  readonly cluster: string
  /** The pod CIDR that needs one. */
  readonly cidr: string
  readonly range: Prefix
  /** Every block that is given or kept. */
  readonly taken: readonly Prefix[]
}

/** One sentence for a member that joins, or states other addresses. */
export function describeMissingBlock({ cluster, cidr, range, taken }: MissingBlock): string {
  const given = taken.filter((block) => containsPrefix(range, block))
  const all = prefixSize(range)
  const free = all - given.reduce((sum, block) => sum + prefixSize(block), 0n)
  const largest = largestFree(range, taken)
  const room = largest === undefined ? 'none is free' : `the largest that is free is a /${largest}`
  return (
    `the global range ${formatPrefix(range)} is exhausted: pod CIDR ${cidr} of cluster ${JSON.stringify(cluster)} overlaps ` +
    `another cluster's and needs a /${parsePrefix(cidr).length} block, and ${room} ` +
    `(${free} of ${all} addresses are free, ${given.length === 1 ? '1 block is' : `${given.length} blocks are`} given): choose pod CIDRs that no other cluster uses, ` +
    `or smaller ones; or evict members that are gone for good ("sealane cluster list", "sealane cluster evict"); ` +
    `or make a clusterset with a larger range (--global-range, when its broker starts first)`
  )
}

/** Length of the largest block that could be given now; undefined where not even one address could. */
function largestFree(range: Prefix, taken: readonly Prefix[]): number | undefined {
  for (let length = range.length; length <= addressBits(range.family); length += 1) {
    try {
      allocateBlock(range, length, taken)
      return length
    } catch {
      // None of this size.
    }
  }
  return undefined
}
