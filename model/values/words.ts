/** The words that fields of several kinds, and of the records about them, may have. */

/** The protocols of a port of a Service. */
export const PROTOCOLS = ['TCP', 'UDP', 'SCTP'] as const
export type Protocol = (typeof PROTOCOLS)[number]

/** How the address of an Endpoint's candidate is known. */
export const CANDIDATE_KINDS = ['private', 'public', 'observed', 'loadBalancer'] as const

/** The types of an imported service. */
export const IMPORT_TYPES = ['ClusterSetIP', 'Headless'] as const

export const SESSION_AFFINITIES = ['ClientIP', 'None'] as const

/** Internal traffic policies. */
export const TRAFFIC_POLICIES: readonly string[] = ['Cluster', 'Local']

/** The most edits by which a misspelt word differs from the one that was meant. */
const MOST_EDITS = 3

/**
 * Gives the name that was probably meant by a misspelt `word`: the one with the fewest edits (insert, drop, replace,
 * swap; capitals do not count), at most 3 and at most two fifths of the longer word. Undefined if none is near enough.
 */
export function nearName(word: string, names: readonly string[]): string | undefined {
  let best: { readonly name: string; readonly edits: number } | undefined
  for (const name of names) {
    if (Math.abs(name.length - word.length) > MOST_EDITS) continue
    const edits = editsBetween(word.toLowerCase(), name.toLowerCase())
    if (edits > MOST_EDITS || edits > Math.max(word.length, name.length) * 0.4) continue
    if (best === undefined || edits < best.edits) best = { name, edits }
  }
  return best?.name
}

/** The optimal string alignment distance. */
function editsBetween(a: string, b: string): number {
  let [before, last]: [readonly number[], readonly number[]] = [[], Array.from({ length: b.length + 1 }, (_, j) => j)]
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i]
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (last[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const swapped =
        i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1] ? (before[j - 2] ?? 0) + 1 : Infinity
      row.push(Math.min(replaced, swapped, (last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1))
    }
    before = last
    last = row
  }
  return last[b.length] ?? 0
}
