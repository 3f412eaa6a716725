/**
 * Whose IPv6 addresses stand back. IPv6 is never translated, so of two clusters in which an address means different
 * things only one can be reached by it: the one with the lower index. Pure.
 */
import { type Prefix, InvalidAddressError, ipv6Among, overlaps, parsePrefix } from './ip.ts'
import { comparePrefixes } from './prefix-set.ts'

export interface CidrClaims {
  readonly id: string
  readonly index: number
  readonly podCIDRs: readonly string[]
  readonly serviceCIDRs: readonly string[]
}

export interface Ipv6Clash {
  /** The CIDR of the cluster that stands back. */
  readonly own: string
  readonly other: string
  /** Id of the cluster that `other` belongs to. */
  readonly cluster: string
}

/**
 * Gives the clusters that are reached by IPv4 only, and why: one of their IPv6 pod or service CIDRs overlaps one of a
 * cluster with a lower index, and at least one of the two is a pod CIDR. All IPv6 of such a cluster stands back, not
 * only what overlaps: else its nodes would have routes of other clusters over addresses of their own pods. What the
 * other cluster states counts even where that stands back itself, so that who leaves takes nothing from anybody.
 * A text that is no CIDR claims nothing.
 */
export function ipv6Clashes(clusters: readonly CidrClaims[]): ReadonlyMap<string, Ipv6Clash> {
  const found = new Map<string, { readonly clash: Ipv6Clash; readonly otherIndex: number }>()
  const open: Claim[] = []
  // Prefixes lie inside one another or apart: in order, those that overlap a claim are the ones still open before it.
  for (const claim of sortedClaims(clusters)) {
    for (let last = open.at(-1); last !== undefined && !overlaps(last.prefix, claim.prefix); last = open.at(-1))
      open.pop()
    for (const outer of open) {
      if (outer.id === claim.id || !(outer.isPods || claim.isPods)) continue
      const [first, second] = outer.index < claim.index ? [outer, claim] : [claim, outer]
      if ((found.get(second.id)?.otherIndex ?? Infinity) <= first.index) continue
      const clash = { own: second.text, other: first.text, cluster: first.id }
      found.set(second.id, { clash, otherIndex: first.index })
    }
    open.push(claim)
  }
  return new Map([...found].map(([id, { clash }]) => [id, clash]))
}

interface Claim {
  readonly id: string
  readonly index: number
  readonly text: string
  readonly prefix: Prefix
  readonly isPods: boolean
}

function sortedClaims(clusters: readonly CidrClaims[]): Claim[] {
  const claims = clusters.flatMap((one) => [...claimsOf(one, one.podCIDRs, true), ...claimsOf(one, one.serviceCIDRs)])
  return claims.sort(
    (a, b) => comparePrefixes(a.prefix, b.prefix) || a.index - b.index || Number(b.isPods) - Number(a.isPods),
  )
}

function claimsOf({ id, index }: CidrClaims, texts: readonly string[], isPods = false): Claim[] {
  return ipv6Among(texts).flatMap((text) => {
    const prefix = tryParse(text)
    return prefix === undefined ? [] : [{ id, index, text, prefix, isPods }]
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
