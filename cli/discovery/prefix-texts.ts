/**
 * Parses networks in the notations that objects of a cluster use: one or several separated by commas, also with host
 * bits. Pure.
 */
import {
  FAMILIES,
  InvalidAddressError,
  type Prefix,
  coverOf,
  formatPrefix,
  ipv4Among,
  ipv6Among,
  isInside,
  ofFamily,
  parseAddress,
  parsePrefix,
  prefixOf,
} from '../../model/addresses/addresses.ts'

const MOST = 64

/**
 * The networks in canonical form, in order of appearance. Texts that are not networks are left out. Host bits are
 * cleared, as the consumers of these fields do.
 */
export function prefixesIn(texts: readonly (string | undefined)[]): string[] {
  const found = texts
    .flatMap((text) => (text ?? '').split(/[\s,]+/).slice(0, MOST))
    .flatMap((text) => {
      const prefix = lenientPrefix(text)
      return prefix === undefined ? [] : [formatPrefix(prefix)]
    })
  return [...new Set(found)].slice(0, MOST)
}

export function lenientPrefix(text: string): Prefix | undefined {
  const [, address = '', length = ''] = /^([0-9a-fA-F.:]{2,45})\/(\d{1,3})$/.exec(text.trim()) ?? []
  try {
    const parsed = parseAddress(address)
    return prefixOf(parsed, parsePrefix(`${parsed.family === 4 ? '0.0.0.0' : '::'}/${String(Number(length))}`).length)
  } catch (error) {
    if (error instanceof InvalidAddressError) return undefined
    throw error
  }
}

/** True if each of the inner networks is inside one of the outer ones. */
export function covers(outer: readonly string[], inner: readonly string[]): boolean {
  const wide = outer.map((text) => parsePrefix(text))
  return inner.every((text) => isInside(parsePrefix(text), wide))
}

/** A network that is derived from others is not wider. Others that are further apart stay several networks. */
const WIDEST = { 4: 12, 6: 40 } as const

/**
 * The smallest networks that contain all of them, sorted, IPv4 first: one for each /12 (IPv6: /40) in which there are
 * any. Networks that are wider themselves stay as they are.
 */
export function smallestCover(texts: readonly string[]): string[] {
  const prefixes = texts.map((text) => parsePrefix(text))
  return FAMILIES.flatMap((family) => {
    const sorted = ofFamily(prefixes, family).sort(
      (a, b) => (a.value < b.value ? -1 : a.value > b.value ? 1 : 0) || a.length - b.length,
    )
    const covers: Prefix[] = []
    for (const prefix of sorted) {
      const before = covers.at(-1)
      const both = before === undefined ? undefined : coverOf(before, prefix, WIDEST[family])
      if (both === undefined) covers.push(prefix)
      else covers[covers.length - 1] = both
    }
    return covers.map(formatPrefix)
  })
}

/** IPv4 first, otherwise in the given order. */
export function byFamily(texts: readonly string[]): string[] {
  return [...ipv4Among(texts), ...ipv6Among(texts)]
}
