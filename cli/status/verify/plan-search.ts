/**
 * What the resolver of a pod does to a name before it asks for the name itself (resolv.conf: `search` and `ndots`).
 * Pure.
 */

export interface ResolverSettings {
  readonly search: readonly string[]
  readonly ndots: number
  /** The addresses of the servers. */
  readonly servers: readonly string[]
}

/** The limits of glibc: six domains in old releases, 15 dots. */
const MOST_DOMAINS = 15
const MOST_NDOTS = 15

/** Reads the text as resolvers do: the last `search` or `domain` counts, and what is not known is skipped. */
export function parseResolvConf(text: string): ResolverSettings {
  let search: readonly string[] = []
  let ndots = 1
  const servers: string[] = []
  for (const line of text.split('\n')) {
    const [word, ...rest] = line.trim().split(/\s+/)
    if (word === 'search' || word === 'domain') {
      search = rest.map((one) => one.replace(/\.$/, '')).filter((one) => one !== '')
    }
    if (word === 'nameserver' && rest[0] !== undefined) servers.push(rest[0])
    if (word !== 'options') continue
    const dots = rest.map((one) => /^ndots:(\d+)$/.exec(one)?.[1]).findLast((one) => one !== undefined)
    if (dots !== undefined) ndots = Math.min(Number(dots), MOST_NDOTS)
  }
  return { search: search.slice(0, MOST_DOMAINS), ndots, servers }
}

/**
 * The names that the resolver asks for before `name` itself, in their order. None if the name has as many dots as
 * `ndots`, or ends with a dot.
 */
export function searchedBefore(name: string, { search, ndots }: Pick<ResolverSettings, 'search' | 'ndots'>): string[] {
  if (name.endsWith('.') || name.split('.').length - 1 >= ndots) return []
  return search.map((domain) => `${name}.${domain}`)
}
