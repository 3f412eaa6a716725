/** Which addresses the other clusters use for a cluster, and how its own map onto them. Pure. */
import { CLUSTERSET_IPV6_PREFIX, type Cluster, type ClusterSpec, LANE_ADDRESS_RANGE } from '../model.ts'
import {
  type Address,
  FAMILIES,
  type Family,
  InvalidAddressError,
  type Prefix,
  addressBits,
  containsAddress,
  formatAddress,
  formatPrefix,
  ipv4Among,
  ipv6Among,
  parseAddress,
  parsePrefix,
  translate,
} from './ip.ts'
import { podPrefixes } from './pod-ranges.ts'

export interface PrefixPair {
  /** The cluster's own prefix. */
  readonly own: Prefix
  /** What everyone else calls it; same length. */
  readonly global: Prefix
}

/**
 * The one-to-one translation of a cluster; empty when its addresses are used as they are. Throws InvalidAddressError
 * unless there is a global CIDR of the same family and size for each pod CIDR, that of an IPv6 one being itself, or
 * none at all.
 */
export function prefixPairs(spec: Pick<ClusterSpec, 'podCIDRs' | 'globalCIDRs'>): PrefixPair[] {
  const { podCIDRs, globalCIDRs } = spec
  if (globalCIDRs.length === 0) return []
  if (globalCIDRs.length !== podCIDRs.length) {
    throw new InvalidAddressError('globalCIDRs', globalCIDRs.join(','), 'one for each of podCIDRs, or none')
  }
  return podCIDRs.map((text, i) => {
    const own = parsePrefix(text, `podCIDRs[${i}]`)
    const global = parsePrefix(globalCIDRs[i] ?? '', `globalCIDRs[${i}]`)
    if (global.family !== own.family || global.length !== own.length) {
      const expected = `the size and family of podCIDRs[${i}], ${formatPrefix(own)}`
      throw new InvalidAddressError(`globalCIDRs[${i}]`, formatPrefix(global), expected)
    }
    if (own.family === 6 && global.value !== own.value) {
      const expected = `podCIDRs[${i}] itself, ${formatPrefix(own)}: IPv6 is not translated`
      throw new InvalidAddressError(`globalCIDRs[${i}]`, formatPrefix(global), expected)
    }
    return { own, global }
  })
}

/** Families of the addresses that a cluster's pods have, as far as they are carried: IPv4 first. */
export function podFamilies(spec: Pick<ClusterSpec, 'podCIDRs'>): ('IPv4' | 'IPv6')[] {
  const families: ('IPv4' | 'IPv6')[] = []
  if (ipv4Among(spec.podCIDRs).length > 0) families.push('IPv4')
  if (ipv6Among(spec.podCIDRs).length > 0) families.push('IPv6')
  return families
}

/**
 * Families that the nodes of a cluster plan for: IPv4 always, also of no cluster, and IPv6 where it has IPv6 pod CIDRs.
 * Unlike podFamilies() it takes no text on trust. Throws InvalidAddressError.
 */
export function plannedFamilies(own: Cluster | undefined): readonly Family[] {
  return podPrefixes(own, 6).length === 0 ? [4] : FAMILIES
}

/** Prefixes under which the other clusters reach this one's pods. */
export function routedPrefixes(spec: Pick<ClusterSpec, 'podCIDRs' | 'globalCIDRs'>): Prefix[] {
  const texts = spec.globalCIDRs.length > 0 ? spec.globalCIDRs : spec.podCIDRs
  return texts.map((text) => parsePrefix(text))
}

/** A pod's own address, as the other clusters must write it; unchanged when nothing is translated. */
export function toGlobalAddress(pairs: readonly PrefixPair[], address: Address): Address {
  const pair = pairs.find((p) => containsAddress(p.own, address))
  return pair === undefined ? address : translate(address, pair.own, pair.global)
}

/** The same for text, as it is in an EndpointSlice. Throws InvalidAddressError. */
export function toGlobalText(pairs: readonly PrefixPair[], text: string): string {
  return formatAddress(toGlobalAddress(pairs, parseAddress(text)))
}

/** Of a cluster: two octets of its lane addresses. */
export const MAX_CLUSTER_INDEX = 0xffff
const MAX_LANE = 0xff

/**
 * Address of a cluster's lane device: 246.<index high byte>.<index low byte>.<lane>. It answers the probes
 * inside the tunnel. Throws RangeError for an index above 65535 or a lane above 255.
 */
export function laneAddress(clusterIndex: number, lane: number): Address {
  if (!Number.isInteger(clusterIndex) || clusterIndex < 0 || clusterIndex > MAX_CLUSTER_INDEX) {
    throw new RangeError(`cluster index ${clusterIndex}: expected 0 to ${MAX_CLUSTER_INDEX}`)
  }
  if (!Number.isInteger(lane) || lane < 0 || lane > MAX_LANE) {
    throw new RangeError(`lane ${lane}: expected 0 to ${MAX_LANE}`)
  }
  const base = parsePrefix(LANE_ADDRESS_RANGE)
  return { family: 4, value: base.value + BigInt(clusterIndex * 256 + lane) }
}

// How many members a clusterset may have.

/** Unless the broker is told otherwise. */
export const DEFAULT_MAX_MEMBERS = 1000
/** There are more numbers for them, but lists of more would not fit into one message (protocol/limits.ts). */
export const MOST_MEMBERS = 10_000
/** From this part on of what there is of something, the broker warns. */
export const NEARLY_FULL = 0.8

// The IPv6 twin of a clusterset IP: a prefix of ours with the IPv4 one in its low 32 bits. Each follows from
// the other, so that no record carries it and no second pool is kept. Pure.

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
