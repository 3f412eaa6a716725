/** Sets of addresses as lists of prefixes. Pure. */
import {
  FAMILIES,
  type Family,
  type Prefix,
  addressBits,
  compareAddresses,
  containsPrefix,
  ofFamily,
  prefixSize,
} from '../values/values.ts'

/** Sorts IPv4 first, then by first address; a wider prefix comes first. */
export function comparePrefixes(a: Prefix, b: Prefix): number {
  return compareAddresses(a, b) || a.length - b.length
}

/** Whether one of `outers` contains the whole prefix. */
export function isInside(prefix: Prefix, outers: readonly Prefix[]): boolean {
  return outers.some((outer) => containsPrefix(outer, prefix))
}

/**
 * Returns the prefixes that no other contains, in their order; of equal ones the first. The kernel rejects sets with
 * overlapping intervals, and with them the whole table.
 */
export function withoutContained(prefixes: readonly Prefix[]): Prefix[] {
  return prefixes.filter(
    (prefix, i) =>
      !prefixes.some((other, j) => containsPrefix(other, prefix) && (other.length < prefix.length || j < i)),
  )
}

/** Returns the same addresses in as few prefixes as possible, sorted. */
export function aggregate(prefixes: readonly Prefix[]): Prefix[] {
  return FAMILIES.flatMap((family) => {
    const spans = new Spans(family)
    for (const prefix of [...ofFamily(prefixes, family)].sort(comparePrefixes)) {
      spans.add(prefix.value, lastOf(prefix))
    }
    return spans.prefixes()
  })
}

export interface LabelledPrefix {
  readonly prefix: Prefix
  readonly meant: boolean
}

/** Returns all addresses whose longest prefix in the list is `meant`, as few disjoint prefixes, IPv4 first. */
export function meantPrefixes(labelled: readonly LabelledPrefix[]): Prefix[] {
  const sorted = [...labelled].sort((a, b) => comparePrefixes(a.prefix, b.prefix))
  return FAMILIES.flatMap((family) =>
    meantSpans(
      family,
      sorted.filter(({ prefix }) => prefix.family === family),
    ),
  )
}

/** Takes sorted prefixes of one family. */
function meantSpans(family: Family, labelled: readonly LabelledPrefix[]): Prefix[] {
  const spans = new Spans(family)
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
  close(1n << BigInt(addressBits(family)))
  return spans.prefixes()
}

/** Runs of addresses of one family, added in order of their first address. */
class Spans {
  readonly #family: Family
  readonly #spans: { from: bigint; to: bigint }[] = []

  constructor(family: Family) {
    this.#family = family
  }

  add(from: bigint, to: bigint): void {
    if (from > to) return
    const last = this.#spans.at(-1)
    if (last === undefined || from > last.to + 1n) this.#spans.push({ from, to })
    else if (to > last.to) last.to = to
  }

  prefixes(): Prefix[] {
    const bits = addressBits(this.#family)
    return this.#spans.flatMap(({ from, to }) => {
      const found: Prefix[] = []
      for (let at = from; at <= to;) {
        let length = bits
        // Find the widest prefix that begins at `at` and does not end after `to`.
        for (let wider = 2n; length > 0 && at % wider === 0n && at + wider - 1n <= to; wider *= 2n) length -= 1
        found.push({ family: this.#family, value: at, length })
        at += 1n << BigInt(bits - length)
      }
      return found
    })
  }
}

function lastOf(prefix: Prefix): bigint {
  return prefix.value + prefixSize(prefix) - 1n
}
