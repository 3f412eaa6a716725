/** Which of a machine's addresses represents it among the pods. Pure. */
import {
  type Address,
  type Prefix,
  compareAddresses,
  containsAddress,
  formatAddress,
  ofFamily,
  parseAddress,
} from './ip.ts'

/**
 * Of a node's own addresses (with or without a prefix length) the first by number inside these ranges of pods, usually
 * that of the bridge: what the node itself calls remote pods from, because only pod addresses are translated and routed
 * back. Ranges are of one family. Undefined when it has none. Throws InvalidAddressError.
 */
export function ownPodAddress(addresses: readonly string[], ranges: readonly Prefix[]): string | undefined {
  const inside = addresses
    .map((text) => parseAddress(text.split('/')[0] ?? ''))
    .filter((address) => ranges.some((range) => containsAddress(range, address)))
    .sort(compareAddresses)
  const found = inside.find((address) => !isOfAllRouters(address, ranges)) ?? inside[0]
  return found === undefined ? undefined : formatAddress(found)
}

/** The first address of an IPv6 network is that of all its routers (RFC 4291 section 2.6.1). Flannel has it, too. */
function isOfAllRouters(address: Address, ranges: readonly Prefix[]): boolean {
  return ofFamily(ranges, 6).some((range) => range.length < 128 && compareAddresses(range, address) === 0)
}
