/**
 * The IPv6 twin of a clusterset IP: a prefix of ours with the IPv4 one in its low 32 bits. Each follows from
 * the other, so that no record carries it and no second pool is kept. Pure.
 */
import {
  InvalidAddressError,
  type Address,
  type Prefix,
  addressBits,
  containsAddress,
  formatAddress,
  parsePrefix,
} from './ip.ts'
import { CLUSTERSET_IPV6_PREFIX } from '../kernel-ids.ts'

/** Takes a clusterset IP of family IPv4. Throws InvalidAddressError for another family. */
export function clustersetIpv6(v4: Address): Address {
  if (v4.family !== 4) throw new InvalidAddressError('clustersetIP', formatAddress(v4), 'an IPv4 address')
  return { family: 6, value: parsePrefix(CLUSTERSET_IPV6_PREFIX).value + v4.value }
}

/** The reverse; undefined for an address that is nobody's twin. */
export function clustersetIpv4(v6: Address): Address | undefined {
  const prefix = parsePrefix(CLUSTERSET_IPV6_PREFIX)
  return containsAddress(prefix, v6) ? { family: 4, value: v6.value - prefix.value } : undefined
}

/**
 * Takes a range of IPv4 and gives that of its twins, of the same size. Throws InvalidAddressError for another family.
 */
export function clustersetIpv6Range(range: Prefix): Prefix {
  return { ...clustersetIpv6(range), length: addressBits(6) - addressBits(4) + range.length }
}
