/** Derives networks from single addresses, such as those that pods have now. Pure. */
import {
  type Address,
  type Prefix,
  containsAddress,
  containsPrefix,
  formatPrefix,
  overlaps,
  parsePrefix,
  prefixOf,
} from '../values/values.ts'

export interface NetworksInit {
  /** Networks that objects of the cluster name. The widest one around an address is taken. */
  readonly declared: readonly Prefix[]
  /** Networks that no suggestion may overlap: those of Services. */
  readonly taken: readonly Prefix[]
  /** Addresses of nodes. A suggestion leaves them out where it can. */
  readonly nodes: readonly Address[]
}

/** Networks as wide as these are given to one cluster. Nothing wider is derived from addresses. */
const WIDTH = { 4: { widest: 16, narrowest: 24, merged: 12 }, 6: { widest: 56, narrowest: 64, merged: 48 } } as const
/** A public address says nothing about its neighbours. */
const PUBLIC_WIDTH = 24
const PRIVATE = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', '198.18.0.0/15', '240.0.0.0/4'].map(
  (text) => parsePrefix(text),
)
/** More networks than this are merged with their neighbours. */
const FEW = 8
/** The most networks that are suggested. */
const MOST = 32

/**
 * Several networks around the addresses, sorted, IPv4 first: a declared one, else /16 (IPv6: /56). A network is
 * narrower, down to /24 (/64), where it would contain a Service or a node. Many networks are merged, but never to more
 * than /12 (/48), and only within one private range.
 */
export function networksAround(addresses: readonly Address[], init: NetworksInit): string[] {
  const widest = [...init.declared].sort((a, b) => a.length - b.length)
  const found: Prefix[] = []
  for (const address of addresses) {
    if (found.some((prefix) => containsAddress(prefix, address))) continue
    const prefix = widest.find((one) => containsAddress(one, address)) ?? derived(address, init)
    if (prefix !== undefined) found.push(prefix)
  }
  const outer = found.filter(
    (one, i) =>
      !found.some((other, j) => i !== j && containsPrefix(other, one) && (other.length < one.length || j < i)),
  )
  const sorted = outer.sort((a, b) => a.family - b.family || (a.value < b.value ? -1 : 1))
  return merged(sorted, init).slice(0, MOST).map(formatPrefix)
}

function derived(address: Address, { taken, nodes }: NetworksInit): Prefix | undefined {
  const { widest, narrowest } = WIDTH[address.family]
  const isPublic = address.family === 4 && !PRIVATE.some((one) => containsAddress(one, address))
  const first = isPublic ? PUBLIC_WIDTH : widest
  const candidates = Array.from({ length: narrowest - first + 1 }, (_, i) => prefixOf(address, first + i))
  const free = candidates.filter((prefix) => !taken.some((one) => overlaps(one, prefix)))
  return free.find((prefix) => !nodes.some((node) => containsAddress(prefix, node))) ?? free[0]
}

function merged(sorted: Prefix[], { taken }: NetworksInit): Prefix[] {
  while (sorted.length > FEW) {
    let [best, cover] = [-1, undefined as Prefix | undefined]
    for (const [i, one] of sorted.entries()) {
      const next = sorted[i + 1]
      const both = next === undefined ? undefined : neighbours(one, next)
      if (both === undefined || taken.some((other) => overlaps(other, both))) continue
      if (cover === undefined || both.length > cover.length) [best, cover] = [i, both]
    }
    if (cover === undefined) return sorted
    const wide = cover
    sorted.splice(best, 2, wide)
  }
  return sorted
}

/** Undefined if the network around both is too wide, or not within one private range. */
function neighbours(a: Prefix, b: Prefix): Prefix | undefined {
  if (a.family !== b.family) return undefined
  const wide = coverOf(a, b, WIDTH[a.family].merged)
  const isWithin = wide !== undefined && (a.family === 6 || PRIVATE.some((one) => containsPrefix(one, wide)))
  return isWithin ? wide : undefined
}

/** The smallest network around both, of one family. Undefined if it would be wider than `/widest`, unless one is. */
export function coverOf(a: Prefix, b: Prefix, widest: number): Prefix | undefined {
  let wide = a.length < b.length ? a : b
  while (!(containsPrefix(wide, a) && containsPrefix(wide, b))) {
    if (wide.length <= widest) return undefined
    wide = prefixOf(wide, wide.length - 1)
  }
  return wide
}
