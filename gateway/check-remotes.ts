/**
 * What other clusters claim, checked before it reaches the kernel. The broker checks too; this is the last door,
 * and it holds when the broker or a member lies: no prefix of ours, none twice, nothing that would catch the
 * tunnels' own packets. Pure.
 */
import { laneAddress, routedPrefixes } from '../model/addressing.ts'
import { parseClusterId } from '../model/ids.ts'
import {
  type Prefix,
  classifyAddress,
  containsAddress,
  formatPrefix,
  overlaps,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../model/ip.ts'
import { DEFAULT_CLUSTERSET_IP_RANGE, LANE_ADDRESS_RANGE } from '../model/kernel-ids.ts'
import type { Cluster, ClusterSpec } from '../model/objects.ts'
import type { GatewayWorld } from './world.ts'

export interface RemoteCluster {
  readonly id: string
  readonly index: number
  /** IPv4 prefixes under which its pods are reached, sorted. */
  readonly prefixes: readonly Prefix[]
}

/** An object that is not used, and why. */
export interface Refusal {
  /** `Cluster paris`, `Endpoint paris.gw-lane0`. */
  readonly subject: string
  readonly reason: string
}

/** Shorter than this is not a network of one cluster. */
const SHORTEST_PREFIX = 8
/** They become arguments of one `wg` call; a list without end would take the whole lane along. */
const MAX_PREFIXES = 64

/**
 * Remote clusters that may be routed, by id. Of two that claim the same address, or the same index, the first by
 * id is kept and the other refused as a whole.
 */
export function checkClusters(world: GatewayWorld): { clusters: RemoteCluster[]; refusals: Refusal[] } {
  const clusters: RemoteCluster[] = []
  const refusals: Refusal[] = []
  const reserved = reservedPrefixes(world.own.spec)
  const underlay = underlayAddresses(world)
  const taken: { readonly prefix: Prefix; readonly by: string }[] = []
  const indexes = new Map([[world.own.spec.index, world.own.spec.id]])
  for (const cluster of sortedRemotes(world)) {
    const result = readCluster(cluster)
    if (typeof result === 'string') {
      refusals.push({ subject: `Cluster ${cluster.metadata.name}`, reason: result })
      continue
    }
    const reason = conflict(result, { reserved, underlay, taken, indexes })
    if (reason !== undefined) {
      refusals.push({ subject: `Cluster ${result.id}`, reason })
      continue
    }
    clusters.push(result)
    indexes.set(result.index, result.id)
    for (const prefix of result.prefixes) taken.push({ prefix, by: result.id })
  }
  return { clusters, refusals }
}

function sortedRemotes(world: GatewayWorld): Cluster[] {
  return world.clusters
    .filter((cluster) => cluster.metadata.name !== world.own.metadata.name)
    .sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
}

/** The cluster's facts, or what is wrong with them. */
function readCluster(cluster: Cluster): RemoteCluster | string {
  const { spec } = cluster
  try {
    parseClusterId(spec.id)
    if (spec.id !== cluster.metadata.name) return `spec.id ${JSON.stringify(spec.id)}: expected the object's name`
    laneAddress(spec.index, 0)
    if (spec.globalCIDRs.length > 0 && spec.globalCIDRs.length !== spec.podCIDRs.length) {
      return `${spec.globalCIDRs.length} globalCIDRs for ${spec.podCIDRs.length} podCIDRs: expected one each`
    }
    const prefixes = routedPrefixes(spec).filter((prefix) => prefix.family === 4)
    if (prefixes.length > MAX_PREFIXES) return `${prefixes.length} prefixes: expected at most ${MAX_PREFIXES}`
    prefixes.sort((a, b) => (a.value < b.value ? -1 : 1))
    return { id: spec.id, index: spec.index, prefixes }
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

interface Claims {
  readonly reserved: readonly { readonly prefix: Prefix; readonly what: string }[]
  readonly underlay: readonly string[]
  readonly taken: readonly { readonly prefix: Prefix; readonly by: string }[]
  readonly indexes: ReadonlyMap<number, string>
}

function conflict(cluster: RemoteCluster, claims: Claims): string | undefined {
  const sameIndex = claims.indexes.get(cluster.index)
  if (sameIndex !== undefined) return `index ${cluster.index} belongs to cluster ${sameIndex}`
  for (const [i, prefix] of cluster.prefixes.entries()) {
    const text = formatPrefix(prefix)
    if (prefix.length < SHORTEST_PREFIX) return `${text}: expected a prefix length of at least ${SHORTEST_PREFIX}`
    const kind = classifyAddress(prefix)
    if (kind !== 'usable') return `${text}: ${kind} addresses cannot be routed`
    const ours = claims.reserved.find((entry) => overlaps(entry.prefix, prefix))
    if (ours !== undefined) return `${text} overlaps ${formatPrefix(ours.prefix)}, ${ours.what}`
    const other = claims.taken.find((entry) => overlaps(entry.prefix, prefix))
    if (other !== undefined) return `${text} overlaps ${formatPrefix(other.prefix)} of cluster ${other.by}`
    if (cluster.prefixes.some((twin, j) => j < i && overlaps(twin, prefix))) return `${text} is claimed twice`
    const caught = claims.underlay.find((address) => containsAddress(prefix, parseAddress(address)))
    if (caught !== undefined) return `${text} holds ${caught}, which this node needs outside the tunnels`
  }
  return undefined
}

/** Prefixes that no other cluster may claim, and what they are. */
export function reservedPrefixes(own: ClusterSpec): { prefix: Prefix; what: string }[] {
  const rows = [
    ...own.podCIDRs.map((text) => ({ text, what: 'a pod CIDR of this cluster' })),
    ...own.serviceCIDRs.map((text) => ({ text, what: 'a service CIDR of this cluster' })),
    ...own.globalCIDRs.map((text) => ({ text, what: 'a global CIDR of this cluster' })),
    { text: DEFAULT_CLUSTERSET_IP_RANGE, what: 'the range of clusterset IPs' },
    { text: LANE_ADDRESS_RANGE, what: 'the range of lane addresses' },
    { text: '127.0.0.0/8', what: 'loopback' },
    { text: '169.254.0.0/16', what: 'link-local' },
    { text: '224.0.0.0/4', what: 'multicast' },
  ]
  return rows.map(({ text, what }) => ({ prefix: parsePrefix(text), what }))
}

/** Addresses that must stay reachable beside the lanes: the nodes of this cluster and this node's own addresses. */
function underlayAddresses(world: GatewayWorld): string[] {
  const nodes = world.nodes.flatMap((node) => node.status?.addresses ?? [])
  const candidates = [
    ...nodes.filter((entry) => entry.type === 'InternalIP').map((entry) => entry.address),
    ...world.addresses.map((entry) => entry.address.split('/')[0] ?? ''),
  ]
  return [...new Set(candidates.filter(isUnderlay))].sort()
}

function isUnderlay(text: string): boolean {
  try {
    const address = parseAddress(text)
    return address.family === 4 && classifyAddress(address) === 'usable'
  } catch {
    return false
  }
}

/** The cluster's lane address as a /32. */
export function lanePrefix(index: number, lane: number): Prefix {
  return prefixOf(laneAddress(index, lane), 32)
}
