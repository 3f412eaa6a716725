/** What differs between the families in the plans of a node: words of nft, and how to read addresses. Pure. */
import type { NftFamily } from '../kernel/nft/nft-transaction.ts'
import type { Family, Prefix } from '../model/addresses/ip.ts'
import { inRange, ipv4Number, ipv4Range, isUsableIpv4 } from './balance/ipv4-number.ts'
import { formatGroups, ipv6Groups, ipv6Network, isUsableIpv6 } from './balance/ipv6-groups.ts'

export interface AddressFamily {
  readonly family: Family
  /** Of the table; also what comes before a field of the packet's header, as in `ip6 daddr`. */
  readonly nft: NftFamily
  /** Type of an address in maps and sets. */
  readonly type: 'ipv4_addr' | 'ipv6_addr'
  /** EndpointSlice.addressType. */
  readonly slices: 'IPv4' | 'IPv6'
  /** How nft refuses a packet to an address that nobody has. */
  readonly unreachable: string
  /** The address as nft prints it; undefined for a text that is none of this family. */
  canonical(text: string): string | undefined
  /** The same, and undefined for addresses that no pod may have: loopback, link-local, multicast and the like. */
  podAddress(text: string): string | undefined
  /** Whether one of these prefixes, all of this family, holds an address. */
  within(prefixes: readonly Prefix[]): (text: string) => boolean
}

const IPV4: AddressFamily = {
  family: 4,
  nft: 'ip',
  type: 'ipv4_addr',
  slices: 'IPv4',
  unreachable: 'icmp type host-unreachable',
  // A dotted quad can be written in one way.
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
