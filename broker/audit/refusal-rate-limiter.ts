/**
 * How many lines callers can cause: each source ten at once and then one in five minutes; all strangers together a
 * hundred and then one a second, and all others as many again, so that strangers do not hide what a stolen token or
 * certificate is used for. What was accepted is paced by itself: a thief that sends ten bad records does not hide that
 * it renews. What is not written is counted, and reported now and then.
 */
import { parseAddress, formatPrefix, prefixOf } from '../../model/addresses/addresses.ts'
import { type Clock, TokenBucket, type TokenRate } from '../../reconcile/reconcile.ts'

const OF_ONE: TokenRate = { burst: 10, perSecond: 1 / 300 }
const OF_ALL: TokenRate = { burst: 100, perSecond: 1 }
const MAX_SOURCES = 4096
/** Named in one report. */
const MAX_NAMED = 8
/** Who has an IPv6 address mostly has all of its /64. */
const IPV6_SUBNET = 64
const MAX_NAME = 64

/** Whom lines are counted for. */
export interface Source {
  readonly name: string
  /** Strangers have shown neither a certificate nor a token of ours. */
  readonly among: 'strangers' | 'known' | 'accepted'
}

export interface Suppressed {
  readonly count: number
  /** How many sources they came from; of more than are remembered: of those at least. */
  readonly sources: number
  /** `source: count` of those with most. */
  readonly most: readonly string[]
}

export class RefusalPace {
  readonly #clock: Pick<Clock, 'monotonic'>
  /** In the order of their last line. */
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

  /** True when one more line of this source may be written; false counts it as suppressed. */
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

  /** What was suppressed since the last call; undefined: nothing was. */
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

/** Who has shown nothing of ours, by address. */
export function strangerSource(address: string): Source {
  return { name: subnetOf(address), among: 'strangers' }
}

/** Who has shown a token that this broker made, by its id. */
export function tokenSource(id: string): Source {
  return { name: `token ${id}`, among: 'known' }
}

/** Who has shown a certificate of ours. */
export function memberSource(cluster: string): Source {
  return { name: `cluster ${cluster}`, among: 'known' }
}

/** The same one, for what it asked for and got. */
export function accepted({ name }: Source): Source {
  return { name: `${name}, accepted`, among: 'accepted' }
}

/** Who shows a certificate of this cluster that was replaced: nothing else that the cluster causes may hide it. */
export function copySource(cluster: string): Source {
  return { name: `copy of cluster ${cluster}`, among: 'accepted' }
}

/** What is no address is a source by itself. */
function subnetOf(address: string): string {
  try {
    const parsed = parseAddress(address)
    return parsed.family === 6 ? formatPrefix(prefixOf(parsed, IPV6_SUBNET)) : address
  } catch {
    return address.slice(0, MAX_NAME)
  }
}
