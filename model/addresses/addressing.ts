/** The addresses under which other clusters reach a cluster, and how the cluster's own addresses map to them. Pure. */
import { CLUSTERSET_IPV6_PREFIX, type Cluster, type ClusterSpec, LANE_ADDRESS_RANGE } from '../model.ts'
import {
  type Address,
  FAMILIES,
  type Family,
  InvalidAddressError,
  MAX_ADDRESSED_LANE,
  MAX_CLUSTER_INDEX,
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
} from '../values/values.ts'
import { podPrefixes } from './pod-ranges.ts'

export interface PrefixPair {
  /** The cluster's own prefix. */
  readonly own: Prefix
  /** The prefix that other clusters use for it, of the same length. */
  readonly global: Prefix
}

/**
 * Returns the one-to-one translation of a cluster; it is empty when the addresses are not translated. Throws
 * InvalidAddressError unless globalCIDRs is empty or has one CIDR of the same family and size for each pod CIDR. The
 * global CIDR of an IPv6 pod CIDR must equal it.
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

/** Returns the address families of a cluster's pods that lanes carry, IPv4 first. */
export function podFamilies(spec: Pick<ClusterSpec, 'podCIDRs'>): ('IPv4' | 'IPv6')[] {
  const families: ('IPv4' | 'IPv6')[] = []
  if (ipv4Among(spec.podCIDRs).length > 0) families.push('IPv4')
  if (ipv6Among(spec.podCIDRs).length > 0) families.push('IPv6')
  return families
}

/**
 * Returns the families that the nodes of a cluster plan for: always IPv4, even without a cluster, and IPv6 if the
 * cluster has IPv6 pod CIDRs. Unlike podFamilies(), it parses the CIDRs. Throws InvalidAddressError.
 */
export function plannedFamilies(own: Cluster | undefined): readonly Family[] {
  return podPrefixes(own, 6).length === 0 ? [4] : FAMILIES
}

/** Returns the prefixes under which other clusters reach this cluster's pods. */
export function routedPrefixes(spec: Pick<ClusterSpec, 'podCIDRs' | 'globalCIDRs'>): Prefix[] {
  const texts = spec.globalCIDRs.length > 0 ? spec.globalCIDRs : spec.podCIDRs
  return texts.map((text) => parsePrefix(text))
}

/** Translates a pod's own address to the one that other clusters use. Returns it unchanged if no pair contains it. */
export function toGlobalAddress(pairs: readonly PrefixPair[], address: Address): Address {
  const pair = pairs.find((p) => containsAddress(p.own, address))
  return pair === undefined ? address : translate(address, pair.own, pair.global)
}

/** Like toGlobalAddress(), for the text form used in an EndpointSlice. Throws InvalidAddressError. */
export function toGlobalText(pairs: readonly PrefixPair[], text: string): string {
  return formatAddress(toGlobalAddress(pairs, parseAddress(text)))
}

/**
 * Returns the address of a cluster's lane device: 246.<index high byte>.<index low byte>.<lane>. The address answers
 * the probes inside the tunnel. Throws RangeError for an index above 65535 or a lane above 255.
 */
export function laneAddress(clusterIndex: number, lane: number): Address {
  if (!Number.isInteger(clusterIndex) || clusterIndex < 0 || clusterIndex > MAX_CLUSTER_INDEX) {
    throw new RangeError(`cluster index ${clusterIndex}: expected 0 to ${MAX_CLUSTER_INDEX}`)
  }
  if (!Number.isInteger(lane) || lane < 0 || lane > MAX_ADDRESSED_LANE) {
    throw new RangeError(`lane ${lane}: expected 0 to ${MAX_ADDRESSED_LANE}`)
  }
  const base = parsePrefix(LANE_ADDRESS_RANGE)
  return { family: 4, value: base.value + BigInt(clusterIndex * 256 + lane) }
}

/** The addresses of all lane devices of a cluster. Throws RangeError as laneAddress() does. */
export function lanePrefix(clusterIndex: number): Prefix {
  return { ...laneAddress(clusterIndex, 0), length: 24 }
}

// Limits on the number of members in a clusterset.

/** The limit if the broker is not configured otherwise. */
export const DEFAULT_MAX_MEMBERS = 1000
/** Cluster indexes go further, but lists of more members do not fit into one message (protocol/limits.ts). */
export const MOST_MEMBERS = 10_000
/** The broker warns when this share of a limited resource is in use. */
export const NEARLY_FULL = 0.8

// The IPv6 twin of a clusterset IP is a fixed prefix with the IPv4 address in its low 32 bits. Each can be computed
// from the other, so records carry only one and there is no second pool. Pure.

/** Returns the IPv6 twin of an IPv4 clusterset IP. Throws InvalidAddressError for another family. */
export function clustersetIpv6(v4: Address): Address {
  if (v4.family !== 4) throw new InvalidAddressError('clustersetIP', formatAddress(v4), 'an IPv4 address')
  return { family: 6, value: parsePrefix(CLUSTERSET_IPV6_PREFIX).value + v4.value }
}

/** The reverse of clustersetIpv6(). Returns undefined if the address is not a twin. */
export function clustersetIpv4(v6: Address): Address | undefined {
  const prefix = parsePrefix(CLUSTERSET_IPV6_PREFIX)
  return containsAddress(prefix, v6) ? { family: 4, value: v6.value - prefix.value } : undefined
}

/**
 * Returns the range of the IPv6 twins of an IPv4 range, with as many addresses. Throws InvalidAddressError for another
 * family.
 */
export function clustersetIpv6Range(range: Prefix): Prefix {
  return { ...clustersetIpv6(range), length: addressBits(6) - addressBits(4) + range.length }
}
