/**
 * On which node pods are: what each node says about itself, checked, and what follows for the one that asks. Where two
 * ranges hold an address the longer prefix decides, as in a route table. IPv4. Pure.
 */
import { type Prefix, compareAddresses, containsPrefix, formatPrefix, parsePrefix, prefixSize } from './ip.ts'
import type { Node, RouteAgent } from './objects.ts'

/** A node tells no more ranges than this; a node has no more pods than that, and most ranges hold many. */
export const MAX_POD_RANGES = 1024

export interface NodeRanges {
  readonly node: string
  readonly ranges: readonly Prefix[]
}

export interface PodPlaces {
  /** Ranges of the other nodes, sorted. Where `exceptions` lie inside one of them, those are not meant. */
  readonly elsewhere: readonly { readonly node: string; readonly prefix: Prefix }[]
  /** Inside a range of another node, but ours or of nobody known; sorted. */
  readonly exceptions: readonly Prefix[]
  /** Claimed by several nodes, so that nobody gets them; sorted. */
  readonly contested: readonly { readonly prefix: Prefix; readonly nodes: readonly string[] }[]
}

/** Spec.podCIDRs of a Node, or the older podCIDR, as far as they lie inside the cluster's. Throws InvalidAddressError. */
export function specRanges(node: Node, podCIDRs: readonly Prefix[]): Prefix[] {
  const single = node.spec?.podCIDR === undefined ? [] : [node.spec.podCIDR]
  const several = node.spec?.podCIDRs ?? []
  const texts = several.length > 0 ? several : single
  return texts.map((text) => parsePrefix(text, 'spec.podCIDR')).filter((prefix) => isInside(prefix, podCIDRs))
}

/**
 * What a node's own RouteAgent tells, else what its Node does. A RouteAgent is written by the node that it is about:
 * what does not parse, or lies outside the cluster's pod CIDRs, is left out. Throws InvalidAddressError for the Node.
 */
export function claimedRanges(node: Node, agent: RouteAgent | undefined, podCIDRs: readonly Prefix[]): Prefix[] {
  const told = (agent?.status?.podRanges ?? [])
    .slice(0, MAX_POD_RANGES)
    .flatMap((text) => parsed(text))
    .filter((prefix) => isInside(prefix, podCIDRs))
  return told.length > 0 ? told : specRanges(node, podCIDRs)
}

export function podPlaces(self: string, claims: readonly NodeRanges[]): PodPlaces {
  const owners = new Map<string, { readonly prefix: Prefix; readonly nodes: Set<string> }>()
  for (const { node, ranges } of claims) {
    for (const prefix of ranges) {
      const key = formatPrefix(prefix)
      const entry = owners.get(key) ?? { prefix, nodes: new Set() }
      entry.nodes.add(node)
      owners.set(key, entry)
    }
  }
  const all = [...owners.values()].sort((a, b) => comparePrefixes(a.prefix, b.prefix))
  const elsewhere: { node: string; prefix: Prefix }[] = []
  const contested: { prefix: Prefix; nodes: string[] }[] = []
  const exceptions: Prefix[] = []
  // Sorted so, whatever holds a prefix comes before it, and stays open until its last address.
  const open: Prefix[] = []
  for (const { prefix, nodes } of all) {
    while (open.length > 0 && !containsPrefix(open.at(-1) as Prefix, prefix)) open.pop()
    const [only = ''] = nodes
    if (nodes.size > 1) contested.push({ prefix, nodes: [...nodes].sort() })
    if (nodes.size === 1 && only !== self) {
      elsewhere.push({ node: only, prefix })
      open.push(prefix)
    } else if (open.length > 0) exceptions.push(prefix)
  }
  return { elsewhere, exceptions, contested }
}

/** All addresses of `elsewhere` that no longer exception takes out, as few disjoint prefixes. */
export function elsewherePrefixes({ elsewhere, exceptions }: Omit<PodPlaces, 'contested'>): Prefix[] {
  const labelled = [
    ...elsewhere.map(({ prefix }) => ({ prefix, meant: true })),
    ...exceptions.map((prefix) => ({ prefix, meant: false })),
  ].sort((a, b) => comparePrefixes(a.prefix, b.prefix))
  const spans = new Spans()
  const open: { readonly end: bigint; readonly meant: boolean }[] = []
  let at = 0n
  const close = (until: bigint): void => {
    for (let top = open.at(-1); top !== undefined && top.end < until; top = open.at(-1)) {
      if (top.meant) spans.add(at, top.end)
      if (top.end >= at) at = top.end + 1n
      open.pop()
    }
  }
  for (const { prefix, meant } of labelled) {
    close(prefix.value)
    if (open.at(-1)?.meant === true) spans.add(at, prefix.value - 1n)
    at = prefix.value
    open.push({ end: lastOf(prefix), meant })
  }
  close(1n << 32n)
  return spans.prefixes()
}

/** The same addresses in as few prefixes as can be, sorted. */
export function aggregate(prefixes: readonly Prefix[]): Prefix[] {
  const spans = new Spans()
  for (const prefix of [...prefixes].sort(comparePrefixes)) spans.add(prefix.value, lastOf(prefix))
  return spans.prefixes()
}

/** Whether a change of a RouteAgent changes where pods are: most are about the ways to other clusters. */
export function toldOtherRanges(
  change:
    | { readonly type: 'set'; readonly object: RouteAgent; readonly previous: RouteAgent | undefined }
    | { readonly type: 'removed' }
    | undefined,
): boolean {
  if (change?.type !== 'set') return true
  return rangesText(change.object) !== rangesText(change.previous)
}

export function isInside(prefix: Prefix, outers: readonly Prefix[]): boolean {
  return prefix.family === 4 && outers.some((outer) => containsPrefix(outer, prefix))
}

/** By first address, wider ones first. */
export function comparePrefixes(a: Prefix, b: Prefix): number {
  return compareAddresses(a, b) || a.length - b.length
}

/** Runs of addresses, given in order of their first. */
class Spans {
  readonly #spans: { from: bigint; to: bigint }[] = []

  add(from: bigint, to: bigint): void {
    if (from > to) return
    const last = this.#spans.at(-1)
    if (last === undefined || from > last.to + 1n) this.#spans.push({ from, to })
    else if (to > last.to) last.to = to
  }

  prefixes(): Prefix[] {
    return this.#spans.flatMap(({ from, to }) => {
      const found: Prefix[] = []
      for (let at = from; at <= to;) {
        let length = 32
        // The widest prefix that begins here and ends in time.
        while (length > 0 && at % (1n << BigInt(33 - length)) === 0n && at + (1n << BigInt(33 - length)) - 1n <= to) {
          length -= 1
        }
        found.push({ family: 4, value: at, length })
        at += 1n << BigInt(32 - length)
      }
      return found
    })
  }
}

function lastOf(prefix: Prefix): bigint {
  return prefix.value + prefixSize(prefix) - 1n
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
