/**
 * Finds the clusters that cannot be reached by IPv6. IPv6 is never translated, so if two clusters use the same
 * addresses for different things, only the cluster that stated them first is reached by IPv6. The IPv6 of the other is
 * left out. Pure.
 */
import { type Prefix, InvalidAddressError, formatPrefix, ipv6Among, overlaps, parsePrefix } from '../values/values.ts'
import type { NeededRange } from './required-ranges.ts'
import { comparePrefixes } from './prefix-set.ts'

export interface CidrClaims {
  readonly id: string
  readonly index: number
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
  /** The ranges that the cluster's machines need outside the lanes. Absent if they are not known. */
  readonly needed?: readonly NeededRange[]
  /**
   * The order in which the CIDRs were stated, by CIDR as formatPrefix() writes it. A CIDR that is not listed was stated
   * before all that are. The index decides between equal positions.
   */
  readonly claimed?: Readonly<Record<string, number>>
}

export interface Ipv6Clash {
  /** The CIDR of the cluster that is left out. */
  readonly own: string
  readonly other: string
  /** Id of the cluster that `other` belongs to; '' if all clusters need it. */
  readonly cluster: string
  /** What `other` is, if it is neither a pod nor a Service CIDR. */
  readonly what?: string
}

/** The pseudo-cluster that owns the ranges that all clusters need. It precedes every cluster. */
const NOBODY: CidrClaims = { id: '', index: -1, podCIDRs: [], serviceCIDRs: [] }

/**
 * Returns the clusters that are reached by IPv4 only, and the reason. A cluster is left out if one of its IPv6 pod or
 * Service CIDRs, or one of its required ranges, overlaps a range that another cluster stated earlier or that all need
 * (`needed`), and at least one of the two is a pod CIDR.
 *
 * All IPv6 of such a cluster is left out, not only the overlap; otherwise its nodes would have routes to other clusters
 * for addresses of their own pods. The ranges of a cluster that is itself left out still count, so a cluster that
 * leaves takes nothing from the others. A text that is not a CIDR claims nothing.
 */
export function ipv6Clashes(
  clusters: readonly CidrClaims[],
  needed: readonly NeededRange[] = [],
): ReadonlyMap<string, Ipv6Clash> {
  const found = new Map<string, { readonly clash: Ipv6Clash; readonly before: StatedRange }>()
  const open: StatedRange[] = []
  // Two prefixes are nested or disjoint. In sorted order, the claims that overlap a claim are those still open before
  // it.
  for (const claim of sortedClaims([...clusters, { ...NOBODY, needed }])) {
    for (let last = open.at(-1); last !== undefined && !overlaps(last.prefix, claim.prefix); last = open.at(-1))
      open.pop()
    for (const outer of open) {
      if (outer.id === claim.id || !(outer.isPods || claim.isPods)) continue
      const [first, second] = isBefore(outer, claim) ? [outer, claim] : [claim, outer]
      const known = found.get(second.id)?.before
      if (known !== undefined && !isBefore(first, known)) continue
      const what = first.what === undefined ? {} : { what: first.what }
      const clash = { own: second.text, other: first.text, cluster: first.id, ...what }
      found.set(second.id, { clash, before: first })
    }
    open.push(claim)
  }
  return new Map([...found].map(([id, { clash }]) => [id, clash]))
}

interface StatedRange {
  readonly id: string
  readonly index: number
  readonly text: string
  readonly prefix: Prefix
  readonly isPods: boolean
  readonly order: number
  readonly what?: string
}

function isBefore(a: StatedRange, b: StatedRange): boolean {
  return a.order - b.order < 0 || (a.order === b.order && a.index < b.index)
}

function sortedClaims(clusters: readonly CidrClaims[]): StatedRange[] {
  const claims = clusters.flatMap((one) => [
    ...claimsOf(one, one.podCIDRs, true),
    ...claimsOf(one, one.serviceCIDRs),
    ...neededOf(one),
  ])
  return claims.sort(
    (a, b) => comparePrefixes(a.prefix, b.prefix) || a.index - b.index || Number(b.isPods) - Number(a.isPods),
  )
}

function claimsOf({ id, index, claimed = {} }: CidrClaims, texts: readonly string[], isPods = false): StatedRange[] {
  return ipv6Among(texts).flatMap((text) => {
    const prefix = tryParse(text)
    return prefix === undefined ? [] : [{ id, index, text, prefix, isPods, order: claimed[formatPrefix(prefix)] ?? -1 }]
  })
}

function neededOf({ id, index, needed = [], claimed = {} }: CidrClaims): StatedRange[] {
  return needed
    .filter(({ prefix }) => prefix.family === 6)
    .map(({ prefix, what }) => {
      const text = formatPrefix(prefix)
      return { id, index, text, prefix, isPods: false, order: claimed[text] ?? -1, what }
    })
}

function tryParse(text: string): Prefix | undefined {
  try {
    return parsePrefix(text)
  } catch (error) {
    if (error instanceof InvalidAddressError) return undefined
    throw error
  }
}
