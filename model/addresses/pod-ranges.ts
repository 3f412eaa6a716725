/**
 * On which node pods are: what each node says about itself, checked, and what follows for the one that asks. A node
 * that was broken into must not get the traffic of others by claiming their pods. So an address that several claim goes
 * to the one whose Node.spec has it, if its own report agrees with the Node; else to none of them: the main table of
 * the reading node, where the CNI's own routes are, decides. A longer prefix alone decides nothing. Each family is on
 * its own: a CNI may allocate one of them by itself. Pure.
 */
import type { Cluster, Node, RouteAgent } from '../model.ts'
import {
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
} from './ip.ts'
import { comparePrefixes, isInside, meantPrefixes } from './prefix-set.ts'

/**
 * A node reports no more ranges than this, of both families together; a node has no more pods than that, and most
 * ranges hold many. IPv4 comes first: a reader of an earlier release knows nothing else, and looks no further than
 * this.
 */
export const MAX_POD_RANGES = 1024

export interface NodeRanges {
  readonly node: string
  readonly ranges: readonly Prefix[]
  /**
   * Those of Node.spec, where the node itself says that they hold. A CNI that keeps books of its own may have put pods
   * of others there: then the node says something else, or nothing.
   */
  readonly confirmed?: readonly Prefix[]
  /** Its Node.spec has a range. Absent: no. Where nobody hands them out, a node may write its own there, once. */
  readonly hasSpec?: boolean
}

/** A node that claims what is another's. */
export interface RefusedClaim {
  readonly node: string
  readonly owner: string
  /** The first of them, and how many there are. */
  readonly prefix: Prefix
  readonly count: number
}

export interface PodPlaces {
  /** Ranges of the other nodes, sorted. Where a longer one, or an exception, lies inside, that one is meant. */
  readonly elsewhere: readonly { readonly node: string; readonly prefix: Prefix }[]
  /** Inside a range of another node, but ours or of no known node; sorted. */
  readonly exceptions: readonly Prefix[]
  /** Claimed by several nodes, so that nobody gets them; sorted. */
  readonly contested: readonly { readonly prefix: Prefix; readonly nodes: readonly string[] }[]
  readonly refused: readonly RefusedClaim[]
}

/** Pod CIDRs of a cluster that are of this family; none of no cluster. Throws InvalidAddressError. */
export function podPrefixes(cluster: Cluster | undefined, family: Family): Prefix[] {
  const all = (cluster?.spec.podCIDRs ?? []).map((text) => parsePrefix(text, 'podCIDR'))
  return ofFamily(all, family)
}

/** The cluster as a node sees it whose kernel has no IPv6: to be planned like one without IPv6 pods. */
export function withoutIpv6Pods(cluster: Cluster): Cluster {
  const { podCIDRs, globalCIDRs } = cluster.spec
  const spec = { ...cluster.spec, podCIDRs: ipv4Among(podCIDRs), globalCIDRs: ipv4Among(globalCIDRs) }
  return { ...cluster, spec }
}

/** Spec.podCIDRs of a Node, or the older podCIDR, as far as they lie inside those given. Throws InvalidAddressError. */
export function specRanges(node: Node, podCIDRs: readonly Prefix[]): Prefix[] {
  const single = node.spec?.podCIDR === undefined ? [] : [node.spec.podCIDR]
  const several = node.spec?.podCIDRs ?? []
  const texts = several.length > 0 ? several : single
  return texts.map((text) => parsePrefix(text, 'spec.podCIDR')).filter((prefix) => isInside(prefix, podCIDRs))
}

/**
 * What a node's own RouteAgent reports; what its Node says where that reports nothing else. Confirmed is what both say:
 * a node reports all of its Node's ranges only where its kernel shows that pods are in them
 * (routeagent/world/plan-own-ranges.ts). A RouteAgent is written by the node that it is about: what does not parse, or lies
 * outside the cluster's pod CIDRs, is left out. Takes the pod CIDRs of one family: where a node reports nothing of
 * IPv6, as in an earlier release, its report for IPv4 counts all the same. Throws InvalidAddressError for the Node.
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
 * Which of those that claim a prefix has it. With several, the one for whom it is confirmed; but only where each of
 * them has ranges in its Node.spec: where some have none nobody hands them out, and a Node's word is that of the node
 * alone. Undefined: not to be known.
 */
export function ownerOf(prefix: Prefix, claimants: readonly NodeRanges[]): string | undefined {
  if (claimants.length === 1) return claimants[0]?.node
  if (claimants.some(({ hasSpec }) => hasSpec !== true)) return undefined
  const backed = claimants.filter(({ confirmed = [] }) => isInside(prefix, confirmed))
  return backed.length === 1 ? backed[0]?.node : undefined
}

/** What `self` claims is never elsewhere for itself: its kernel knows. */
export function podPlaces(self: string, claims: readonly NodeRanges[]): PodPlaces {
  const elsewhere: { node: string; prefix: Prefix }[] = []
  const contested: { prefix: Prefix; nodes: string[] }[] = []
  const exceptions: Prefix[] = []
  const refused = new Map<string, RefusedClaim>()
  const byNode = new Map(claims.map((claim) => [claim.node, claim]))
  // Sorted so, whatever holds a prefix comes before it, and stays open until its last address.
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
  /** All that claim it, or more. */
  readonly claimants: ReadonlySet<string>
  /** Where it is routed to; undefined: nowhere. */
  readonly to: string | undefined
}

/** Each prefix once, with the nodes that claim it, wider ones before what is inside them. */
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

/** All addresses of `elsewhere` that no longer exception takes out, as few disjoint prefixes, IPv4 first. */
export function elsewherePrefixes({ elsewhere, exceptions }: Pick<PodPlaces, 'elsewhere' | 'exceptions'>): Prefix[] {
  return meantPrefixes([
    ...elsewhere.map(({ prefix }) => ({ prefix, meant: true })),
    ...exceptions.map((prefix) => ({ prefix, meant: false })),
  ])
}

/** Whether a change of a RouteAgent changes where pods are: most are about the ways to other clusters. */
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

// Which of a machine's addresses represents it among the pods. Pure.

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
