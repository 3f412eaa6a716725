/**
 * Finds the node of each pod address from what each node reports about itself, as seen by one node. A compromised node
 * must not get the traffic of others by claiming their pods. So an address that several nodes claim goes to the node
 * whose Node.spec contains it, if that node's own report agrees. Otherwise it goes to none of them, and the reading
 * node's main table, with the routes of the CNI, decides. A longer prefix alone decides nothing. Each family is decided
 * separately, since a CNI may allocate one of them without Node.spec. Pure.
 */
import type { Cluster, Node, RouteAgent } from '../model.ts'
import {
  MAX_POD_RANGES,
  type Address,
  type Family,
  type Prefix,
  compareAddresses,
  containsAddress,
  containsPrefix,
  formatAddress,
  formatPrefix,
  ipv4Among,
  ofFamily,
  parseAddress,
  parsePrefix,
} from '../values/values.ts'
import { comparePrefixes, isInside, meantPrefixes } from './prefix-set.ts'

export interface NodeRanges {
  readonly node: string
  readonly ranges: readonly Prefix[]
  /**
   * The ranges of Node.spec that the node itself confirms. A CNI with its own allocation may have put pods of other
   * nodes there; the node then reports other ranges, or none.
   */
  readonly confirmed?: readonly Prefix[]
  /**
   * Whether Node.spec has a range; absent means no. If no controller allocates ranges, a node may write its own there
   * once.
   */
  readonly hasSpec?: boolean
}

/** A node's claim to a range of another node. */
export interface RefusedClaim {
  readonly node: string
  readonly owner: string
  /** The first such prefix, and the number of them. */
  readonly prefix: Prefix
  readonly count: number
}

export interface PodPlaces {
  /** Ranges of the other nodes, sorted. A longer range or an exception inside a range takes precedence over it. */
  readonly elsewhere: readonly { readonly node: string; readonly prefix: Prefix }[]
  /** Prefixes inside a range of another node that belong to this node or to no known node, sorted. */
  readonly exceptions: readonly Prefix[]
  /** Prefixes that several nodes claim, so that no node gets them, sorted. */
  readonly contested: readonly { readonly prefix: Prefix; readonly nodes: readonly string[] }[]
  readonly refused: readonly RefusedClaim[]
}

/** Returns the cluster's pod CIDRs of one family; empty without a cluster. Throws InvalidAddressError. */
export function podPrefixes(cluster: Cluster | undefined, family: Family): Prefix[] {
  const all = (cluster?.spec.podCIDRs ?? []).map((text) => parsePrefix(text, 'podCIDR'))
  return ofFamily(all, family)
}

/** Returns the cluster as seen by a node whose kernel has no IPv6: planned like a cluster without IPv6 pods. */
export function withoutIpv6Pods(cluster: Cluster): Cluster {
  const { podCIDRs, globalCIDRs } = cluster.spec
  const spec = { ...cluster.spec, podCIDRs: ipv4Among(podCIDRs), globalCIDRs: ipv4Among(globalCIDRs) }
  return { ...cluster, spec }
}

/**
 * Returns spec.podCIDRs of a Node, or the older podCIDR, as far as they lie inside the given ones. Throws
 * InvalidAddressError.
 */
export function specRanges(node: Node, podCIDRs: readonly Prefix[]): Prefix[] {
  const single = node.spec?.podCIDR === undefined ? [] : [node.spec.podCIDR]
  const several = node.spec?.podCIDRs ?? []
  const texts = several.length > 0 ? several : single
  return texts.map((text) => parsePrefix(text, 'spec.podCIDR')).filter((prefix) => isInside(prefix, podCIDRs))
}

/**
 * Returns what a node's own RouteAgent reports, or Node.spec if the report contains no more than that. A range is
 * confirmed if both contain it: a node reports all ranges of its Node only if its kernel shows pods in them
 * (routeagent/world/plan-own-ranges.ts). A node writes its own RouteAgent, so entries that do not parse, or lie outside
 * the cluster's pod CIDRs, are ignored. Takes the pod CIDRs of one family: if a node reports nothing for IPv6, as in an
 * earlier release, its report for IPv4 still counts. Throws InvalidAddressError for the Node.
 */
export function nodeClaim(node: Node, agent: RouteAgent | undefined, podCIDRs: readonly Prefix[]): NodeRanges {
  const reported = (agent?.status?.podRanges ?? [])
    .slice(0, MAX_POD_RANGES)
    .flatMap((text) => parsed(text))
    .filter((prefix) => isInside(prefix, podCIDRs))
  const spec = specRanges(node, podCIDRs)
  return {
    node: node.metadata.name,
    ranges: reported.every((prefix) => isInside(prefix, spec)) ? spec : reported,
    confirmed: spec.every((prefix) => isInside(prefix, reported)) ? spec : [],
    hasSpec: spec.length > 0,
  }
}

/**
 * Returns the node that owns a prefix among its claimants. Of several, it is the one for which the prefix is confirmed,
 * but only if each claimant has ranges in its Node.spec. If one has none, no controller allocates ranges, and each node
 * writes its own Node.spec. Undefined if there is no certain owner.
 */
export function ownerOf(prefix: Prefix, claimants: readonly NodeRanges[]): string | undefined {
  if (claimants.length === 1) return claimants[0]?.node
  if (claimants.some(({ hasSpec }) => hasSpec !== true)) return undefined
  const backed = claimants.filter(({ confirmed = [] }) => isInside(prefix, confirmed))
  return backed.length === 1 ? backed[0]?.node : undefined
}

/** What `self` claims is never elsewhere for `self`: its kernel knows where its pods are. */
export function podPlaces(self: string, claims: readonly NodeRanges[]): PodPlaces {
  const elsewhere: { node: string; prefix: Prefix }[] = []
  const contested: { prefix: Prefix; nodes: string[] }[] = []
  const exceptions: Prefix[] = []
  const refused = new Map<string, RefusedClaim>()
  const byNode = new Map(claims.map((claim) => [claim.node, claim]))
  // In this order a prefix comes after all that contain it; each stays open until its last address.
  const open: OpenClaim[] = []
  for (const { prefix, nodes } of claimedPrefixes(claims)) {
    while (open.length > 0 && !containsPrefix((open.at(-1) as OpenClaim).prefix, prefix)) open.pop()
    const around = open.at(-1)
    const claimants = new Set([...(around?.claimants ?? []), ...nodes])
    const owner = ownerOf(
      prefix,
      [...claimants].flatMap((node) => byNode.get(node) ?? []),
    )
    const to = claimants.has(self) ? undefined : owner
    if (owner === undefined && (nodes.size > 1 || !claimants.has(self))) {
      contested.push({ prefix, nodes: [...claimants].sort() })
    }
    if (owner !== undefined) noteRefused(refused, { claimants, owner, prefix })
    if (to !== undefined && to !== around?.to) elsewhere.push({ node: to, prefix })
    if (to === undefined && around?.to !== undefined) exceptions.push(prefix)
    open.push({ prefix, claimants, to })
  }
  return { elsewhere, exceptions, contested, refused: [...refused.values()] }
}

interface OpenClaim {
  readonly prefix: Prefix
  /** The nodes that claim this prefix or one that contains it. */
  readonly claimants: ReadonlySet<string>
  /** The node that it is routed to; undefined if it is not routed. */
  readonly to: string | undefined
}

/** Returns each prefix once, with the nodes that claim it; a wider prefix comes before those inside it. */
function claimedPrefixes(claims: readonly NodeRanges[]): { prefix: Prefix; nodes: Set<string> }[] {
  const owners = new Map<string, { readonly prefix: Prefix; readonly nodes: Set<string> }>()
  for (const { node, ranges, confirmed = [] } of claims) {
    for (const prefix of [...ranges, ...confirmed]) {
      const key = formatPrefix(prefix)
      const entry = owners.get(key) ?? { prefix, nodes: new Set() }
      entry.nodes.add(node)
      owners.set(key, entry)
    }
  }
  return [...owners.values()].sort((a, b) => comparePrefixes(a.prefix, b.prefix))
}

function noteRefused(
  refused: Map<string, RefusedClaim>,
  init: { readonly claimants: ReadonlySet<string>; readonly owner: string; readonly prefix: Prefix },
): void {
  const { claimants, owner, prefix } = init
  for (const node of claimants) {
    if (node === owner) continue
    const key = `${node} ${owner}`
    const known = refused.get(key)
    refused.set(key, { node, owner, prefix: known?.prefix ?? prefix, count: (known?.count ?? 0) + 1 })
  }
}

/** Returns all addresses of `elsewhere` that no longer exception excludes, as few disjoint prefixes, IPv4 first. */
export function elsewherePrefixes({ elsewhere, exceptions }: Pick<PodPlaces, 'elsewhere' | 'exceptions'>): Prefix[] {
  return meantPrefixes([
    ...elsewhere.map(({ prefix }) => ({ prefix, meant: true })),
    ...exceptions.map((prefix) => ({ prefix, meant: false })),
  ])
}

/** Whether a change of a RouteAgent changes where pods are. Most changes are about routes to other clusters. */
export function reportedOtherRanges(
  change:
    | { readonly type: 'set'; readonly object: RouteAgent; readonly previous: RouteAgent | undefined }
    | { readonly type: 'removed' }
    | undefined,
): boolean {
  if (change?.type !== 'set') return true
  return rangesText(change.object) !== rangesText(change.previous)
}

function rangesText(agent: RouteAgent | undefined): string {
  return (agent?.status?.podRanges ?? []).join(' ')
}

function parsed(text: unknown): Prefix[] {
  try {
    return typeof text === 'string' ? [parsePrefix(text)] : []
  } catch {
    return []
  }
}

// Selects the address of a machine that represents it among the pods. Pure.

/**
 * Returns the lowest of a node's own addresses (with or without a prefix length) inside these pod ranges, usually that
 * of the bridge. The node uses it as the source for remote pods, because only pod addresses are translated and routed
 * back. All ranges are of one family. Undefined if the node has no such address. Throws InvalidAddressError.
 */
export function ownPodAddress(addresses: readonly string[], ranges: readonly Prefix[]): string | undefined {
  const inside = addresses
    .map((text) => parseAddress(text.split('/')[0] ?? ''))
    .filter((address) => ranges.some((range) => containsAddress(range, address)))
    .sort(compareAddresses)
  const found = inside.find((address) => !isOfAllRouters(address, ranges)) ?? inside[0]
  return found === undefined ? undefined : formatAddress(found)
}

/**
 * The first address of an IPv6 network is the anycast address of its routers (RFC 4291 section 2.6.1). Flannel assigns
 * it, too.
 */
function isOfAllRouters(address: Address, ranges: readonly Prefix[]): boolean {
  return ofFamily(ranges, 6).some((range) => range.length < 128 && compareAddresses(range, address) === 0)
}
