/** Networks as objects of a cluster write them: one text, several with commas, host bits and all. Pure. */
import {
  FAMILIES,
  InvalidAddressError,
  type Prefix,
  containsPrefix,
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
 * Canonical texts in order of appearance, without those that are no network. Host bits are cleared, as users of these
 * fields do.
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

/** Each of the inner networks lies in one of the outer ones. */
export function covers(outer: readonly string[], inner: readonly string[]): boolean {
  const wide = outer.map((text) => parsePrefix(text))
  return inner.every((text) => isInside(parsePrefix(text), wide))
}

/** The smallest network that holds all of them, for each family. */
export function smallestCover(texts: readonly string[]): string[] {
  const prefixes = texts.map((text) => parsePrefix(text))
  return FAMILIES.flatMap((family) => {
    const [first, ...rest] = ofFamily(prefixes, family)
    if (first === undefined) return []
    const cover = rest.reduce((sum, prefix) => {
      let wide = sum
      while (!containsPrefix(wide, prefix)) wide = prefixOf(wide, wide.length - 1)
      return wide
    }, first)
    return [formatPrefix(cover)]
  })
}

/** IPv4 first, then as they came. */
export function byFamily(texts: readonly string[]): string[] {
  return [...ipv4Among(texts), ...ipv6Among(texts)]
}
