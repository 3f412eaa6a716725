/**
 * Validates the claims of other clusters for each component that uses them. The broker validates too; this check also
 * holds if the broker or a member lies. It rejects prefixes of this cluster, prefixes that are claimed twice, and
 * prefixes that would capture the traffic of the nodes outside the tunnels. Pure.
 */
import { laneAddress, plannedFamilies, routedPrefixes } from './addressing.ts'
import {
  CLUSTERSET_IPV6_PREFIX,
  type Cluster,
  type ClusterSpec,
  DEFAULT_CLUSTERSET_IP_RANGE,
  LANE_ADDRESS_RANGE,
  type Node,
  parseClusterId,
} from '../model.ts'
import {
  type Family,
  type Prefix,
  classifyAddress,
  containsAddress,
  formatPrefix,
  ofFamily,
  overlaps,
  parseAddress,
  parsePrefix,
} from '../values/values.ts'
import { type NeededRange, neededIn, neededText } from './required-ranges.ts'
import { comparePrefixes } from './prefix-set.ts'
import { type Problem, type ReasonCode, problem } from '../reasons/reasons.ts'

export interface RemoteCluster {
  readonly id: string
  readonly index: number
  /**
   * Prefixes under which the cluster's pods are reached; IPv4 first, then by number. IPv6 is included only if this
   * cluster has an IPv6 pod CIDR itself. A plan for one family selects its own with ofFamily().
   */
  readonly prefixes: readonly Prefix[]
}

/** A cluster that is refused, or whose IPv6 is, and the reason. */
export interface RefusedCluster extends Problem {
  /** Name of the Cluster object. */
  readonly name: string
}

export interface ClusterValidation {
  /** Sorted by id. */
  readonly clusters: readonly RemoteCluster[]
  readonly refused: readonly RefusedCluster[]
}

export interface RemoteClustersInit {
  readonly own: Cluster
  /** All Cluster objects, with or without our own. */
  readonly clusters: readonly Cluster[]
  /** Addresses that must stay reachable outside the lanes: underlayAddresses(). */
  readonly underlay: readonly string[]
  /** What else this machine needs outside the lanes: machineRequiredRanges(). Absent if it is not known. */
  readonly needed?: readonly NeededRange[]
}

/** Prefix length of the largest network of each family that one cluster may claim. */
export const SHORTEST_PREFIX: Readonly<Record<Family, number>> = { 4: 8, 6: 16 }
/** The prefixes become arguments of one `wg` call; an unlimited list would make the whole lane fail. */
const MAX_PREFIXES = 64

/**
 * Returns the remote clusters that may be routed. Of two that claim the same address or the same index, the first by
 * name is kept and the other refused. A bad IPv4 claim refuses the cluster as a whole: otherwise its services would
 * answer on some of their addresses only, without an error for the rest. A bad IPv6 claim removes only the cluster's
 * IPv6: an IPv6 prefix may move from one member to another, and for a moment both have it.
 *
 * IPv6 claims are not checked if this cluster has no IPv6 pod CIDR, since they are not routed then. If they overlap its
 * pods, so that its own IPv6 is not carried, that is no error, and IPv4 must continue.
 */
export function checkRemoteClusters({
  own,
  clusters: all,
  underlay,
  needed = [],
}: RemoteClustersInit): ClusterValidation {
  const clusters: RemoteCluster[] = []
  const refused: RefusedCluster[] = []
  const taken: { readonly prefix: Prefix; readonly by: string }[] = []
  const indexes = new Map([[own.spec.index, own.spec.id]])
  const claims = { reserved: reservedPrefixes(own.spec), underlay, needed, taken, indexes }
  const families = plannedFamilies(own)
  const remotes = all.filter((cluster) => cluster.metadata.name !== own.metadata.name)
  for (const cluster of remotes.sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))) {
    const { validation, problem: found } = validate(readCluster(cluster, families), claims)
    if (found !== undefined) refused.push({ name: cluster.metadata.name, ...found })
    if (validation === undefined) continue
    clusters.push(validation)
    indexes.set(validation.index, validation.id)
    for (const prefix of validation.prefixes) taken.push({ prefix, by: validation.id })
  }
  return { clusters, refused }
}

interface Validated {
  /** What may be routed of the cluster; undefined if nothing may. */
  readonly validation?: RemoteCluster
  readonly problem?: Problem
}

function validate(cluster: RemoteCluster | Problem, claims: TakenRanges): Validated {
  if ('reason' in cluster) return { problem: cluster }
  const four = { ...cluster, prefixes: ofFamily(cluster.prefixes, 4) }
  const found = conflict(four, claims)
  if (found !== undefined) return { problem: found }
  const ipv6 = conflict({ ...cluster, prefixes: ofFamily(cluster.prefixes, 6) }, claims)
  if (ipv6 === undefined) return { validation: cluster }
  return { validation: four, problem: problem(ipv6.reason, `its IPv6 is left out: ${ipv6.message}`) }
}

/**
 * Returns the addresses that the nodes of this cluster need outside the tunnels, sorted: their InternalIPs, and
 * `addresses` (with or without a prefix length), if the caller knows those of its own machine.
 */
export function underlayAddresses(nodes: readonly Node[], addresses: readonly string[] = []): string[] {
  const internal = nodes.flatMap((node) => node.status?.addresses ?? []).filter((entry) => entry.type === 'InternalIP')
  const all = [...internal.map((entry) => entry.address), ...addresses.map((text) => text.split('/')[0] ?? '')]
  return [...new Set(all.filter(isUnderlay))].sort()
}

function isUnderlay(text: string): boolean {
  try {
    const address = parseAddress(text)
    return classifyAddress(address) === 'usable'
  } catch {
    return false
  }
}

/** Returns the parsed facts of the cluster, or what is wrong with them. */
function readCluster(cluster: Cluster, families: readonly Family[]): RemoteCluster | Problem {
  const { spec } = cluster
  try {
    parseClusterId(spec.id)
    if (spec.id !== cluster.metadata.name)
      return problem('ForeignClaim', `spec.id ${JSON.stringify(spec.id)}: expected the object's name`)
    laneAddress(spec.index, 0)
    if (spec.globalCIDRs.length > 0 && spec.globalCIDRs.length !== spec.podCIDRs.length) {
      return problem(
        'InvalidValue',
        `${spec.globalCIDRs.length} globalCIDRs for ${spec.podCIDRs.length} podCIDRs: expected one each`,
      )
    }
    const prefixes = routedPrefixes(spec).filter((prefix) => families.includes(prefix.family))
    if (prefixes.length > MAX_PREFIXES)
      return problem('InvalidValue', `${prefixes.length} prefixes: expected at most ${MAX_PREFIXES}`)
    prefixes.sort(comparePrefixes)
    return { id: spec.id, index: spec.index, prefixes }
  } catch (error) {
    if (error instanceof Error) return problem('InvalidValue', error.message)
    throw error
  }
}

interface TakenRanges {
  readonly reserved: readonly ReservedPrefix[]
  readonly underlay: readonly string[]
  readonly needed: readonly NeededRange[]
  readonly taken: readonly { readonly prefix: Prefix; readonly by: string }[]
  readonly indexes: ReadonlyMap<number, string>
}

function conflict(cluster: RemoteCluster, claims: TakenRanges): Problem | undefined {
  const sameIndex = claims.indexes.get(cluster.index)
  if (sameIndex !== undefined) return problem('IndexTaken', `index ${cluster.index} belongs to cluster ${sameIndex}`)
  for (const [i, prefix] of cluster.prefixes.entries()) {
    const text = formatPrefix(prefix)
    const shortest = SHORTEST_PREFIX[prefix.family]
    if (prefix.length < shortest)
      return problem('RangeSize', `${text}: expected a prefix length of at least ${shortest}`)
    const kind = classifyAddress(prefix)
    if (kind !== 'usable') return problem('RangeReserved', `${text}: ${kind} addresses cannot be routed`)
    const ours = claims.reserved.find((entry) => overlaps(entry.prefix, prefix))
    if (ours !== undefined) return problem(ours.reason, `${text} overlaps ${formatPrefix(ours.prefix)}, ${ours.what}`)
    const other = claims.taken.find((entry) => overlaps(entry.prefix, prefix))
    if (other !== undefined)
      return problem('OverlapsOtherCluster', `${text} overlaps ${formatPrefix(other.prefix)} of cluster ${other.by}`)
    if (cluster.prefixes.some((twin, j) => j < i && overlaps(twin, prefix)))
      return problem('RangesOverlap', `${text} is claimed twice`)
    const caught = claims.underlay.find((address) => containsAddress(prefix, parseAddress(address)))
    if (caught !== undefined)
      return problem('OverlapsNeeded', `${text} holds ${caught}, which this node needs outside the tunnels`)
    const also = neededIn(prefix, claims.needed)
    if (also !== undefined)
      return problem('OverlapsNeeded', `${text} ${neededText(also)}: this node needs that outside the tunnels`)
  }
  return undefined
}

export interface ReservedPrefix {
  readonly prefix: Prefix
  /** What the prefix is, in words. */
  readonly what: string
  /** The reason code for refusing a cluster that claims it. */
  readonly reason: ReasonCode
}

/** Returns the prefixes that no other cluster may claim, and what they are. */
export function reservedPrefixes(own: ClusterSpec): ReservedPrefix[] {
  const ours = [
    ...own.podCIDRs.map((text) => ({ text, what: 'a pod CIDR of this cluster' })),
    ...own.serviceCIDRs.map((text) => ({ text, what: 'a service CIDR of this cluster' })),
    ...own.globalCIDRs.map((text) => ({ text, what: 'a global CIDR of this cluster' })),
  ]
  const others = [
    { text: DEFAULT_CLUSTERSET_IP_RANGE, what: 'the range of clusterset IPs' },
    { text: LANE_ADDRESS_RANGE, what: 'the range of lane addresses' },
    { text: '127.0.0.0/8', what: 'loopback' },
    { text: '169.254.0.0/16', what: 'link-local' },
    { text: '224.0.0.0/4', what: 'multicast' },
    { text: CLUSTERSET_IPV6_PREFIX, what: 'the range of clusterset IPs' },
    // RFC 4291 sections 2.4 and 2.5.5, RFC 6052.
    { text: '::/8', what: 'loopback and IPv4-mapped addresses' },
    { text: 'fe80::/10', what: 'link-local' },
    { text: 'ff00::/8', what: 'multicast' },
  ]
  return [
    ...ours.map(({ text, what }) => ({ prefix: parsePrefix(text), what, reason: 'OverlapsOwnRange' as const })),
    ...others.map(({ text, what }) => ({ prefix: parsePrefix(text), what, reason: 'RangeReserved' as const })),
  ]
}
