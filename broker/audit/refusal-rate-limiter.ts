/**
 * Rate limiter for lines that callers cause. Each source may cause ten at once, then one in five minutes. All strangers
 * together may cause a hundred, then one a second. Known sources have the same limit together, so that strangers cannot
 * hide the use of a stolen token or certificate. Accepted requests have a limit of their own: a thief that sends ten
 * bad records cannot hide that it renews. Suppressed lines are counted and reported regularly.
 */
import { parseAddress, formatPrefix, prefixOf } from '../../model/addresses/addresses.ts'
import { type Clock, TokenBucket, type TokenRate } from '../../reconcile/reconcile.ts'

const OF_ONE: TokenRate = { burst: 10, perSecond: 1 / 300 }
const OF_ALL: TokenRate = { burst: 100, perSecond: 1 }
const MAX_SOURCES = 4096
/** Sources that a report names. */
const MAX_NAMED = 8
/** A client with an IPv6 address usually has all of its /64. */
const IPV6_SUBNET = 64
const MAX_NAME = 64

/** A source for which lines are counted. */
export interface Source {
  readonly name: string
  /** Strangers have shown neither a certificate nor a token of this clusterset. */
  readonly among: 'strangers' | 'known' | 'accepted'
}

export interface Suppressed {
  readonly count: number
  /** Number of sources that caused them. A lower bound if there are more than are stored. */
  readonly sources: number
  /** `source: count` of the sources with the most lines. */
  readonly most: readonly string[]
}

export class RefusalRateLimiter {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** Ordered by their last line. */
  readonly #buckets = new Map<string, TokenBucket>()
  readonly #all: Readonly<Record<Source['among'], TokenBucket>>
  #suppressed = new Map<string, number>()
  #count = 0

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
    this.#all = {
      strangers: new TokenBucket(clock),
      known: new TokenBucket(clock),
      accepted: new TokenBucket(clock),
    }
  }

  /** Whether one more line of this source may be written. If not, it is counted as suppressed. */
  allows({ name, among }: Source): boolean {
    const bucket = this.#buckets.get(name) ?? new TokenBucket(this.#clock)
    const all = this.#all[among]
    if (!bucket.canTake(1, OF_ONE) || !all.canTake(1, OF_ALL)) {
      this.#suppress(name)
      return false
    }
    bucket.take(1, OF_ONE)
    all.take(1, OF_ALL)
    this.#buckets.delete(name)
    this.#buckets.set(name, bucket)
    const oldest = this.#buckets.size > MAX_SOURCES ? this.#buckets.keys().next().value : undefined
    if (oldest !== undefined) this.#buckets.delete(oldest)
    return true
  }

  /** The lines that were suppressed since the last call. Undefined if there are none. */
  take(): Suppressed | undefined {
    if (this.#count === 0) return undefined
    const sorted = [...this.#suppressed].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1))
    const most = sorted.slice(0, MAX_NAMED).map(([source, count]) => `${source}: ${count}`)
    const taken = { count: this.#count, sources: sorted.length, most }
    this.#suppressed = new Map()
    this.#count = 0
    return taken
  }

  #suppress(source: string): void {
    this.#count += 1
    const count = this.#suppressed.get(source)
    if (count !== undefined || this.#suppressed.size < MAX_SOURCES) this.#suppressed.set(source, (count ?? 0) + 1)
  }
}

/** A client that has shown neither a certificate nor a token of this clusterset, by address. */
export function strangerSource(address: string): Source {
  return { name: subnetOf(address), among: 'strangers' }
}

/** A client that has shown a token of this broker, by the token's id. */
export function tokenSource(id: string): Source {
  return { name: `token ${id}`, among: 'known' }
}

/** A client that has shown a certificate of this clusterset. */
export function memberSource(cluster: string): Source {
  return { name: `cluster ${cluster}`, among: 'known' }
}

/** The same source, for its accepted requests. */
export function accepted({ name }: Source): Source {
  return { name: `${name}, accepted`, among: 'accepted' }
}

/** A client that shows a replaced certificate of this cluster: other lines that the cluster causes must not hide it. */
export function copySource(cluster: string): Source {
  return { name: `copy of cluster ${cluster}`, among: 'accepted' }
}

/** A text that is not an address is a source of its own. */
function subnetOf(address: string): string {
  try {
    const parsed = parseAddress(address)
    return parsed.family === 6 ? formatPrefix(prefixOf(parsed, IPV6_SUBNET)) : address
  } catch {
    return address.slice(0, MAX_NAME)
  }
}
