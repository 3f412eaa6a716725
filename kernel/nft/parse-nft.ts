/** Reads what `nft list` prints. */
import type { NftElement } from './nft-transaction.ts'

/** Elements out of `nft list set` or `map`, sorted by key. Quoted device names keep their quotes. */
export function parseElements(listing: string): readonly NftElement[] {
  const start = listing.indexOf('elements = {')
  if (start < 0) return []
  const from = start + 'elements = {'.length
  const body = listing.slice(from, listing.indexOf('}', from))
  const elements: NftElement[] = []
  // No key or value has a comma, also not inside quotes: device names with one are refused by formatNft().
  for (const part of body.split(',')) {
    const text = part.trim()
    if (text === '') continue
    const colon = text.indexOf(' : ')
    elements.push(colon < 0 ? { key: text } : { key: text.slice(0, colon), value: text.slice(colon + 3) })
  }
  return elements.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))
}

/** Packets by name, out of `nft list counters`. */
export function parseCounters(listing: string): ReadonlyMap<string, number> {
  const found = listing.matchAll(/\bcounter (\S+) \{\s+packets (\d+) bytes \d+/g)
  return new Map([...found].map(([, name = '', packets]) => [name, Number(packets)]))
}
