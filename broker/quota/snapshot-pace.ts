/**
 * How much is made for one member alone. Who asks for everything is given parts that all are given; who asks for some
 * namespaces may be the only one that asks for these, and each other set is made anew. So a member is given everything
 * a few times at once, and then at a rate. Counted over all of its streams.
 */
import type { ClusterId } from '../../model/ids.ts'
import type { AskedInterest } from '../../protocol/broker-api.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { TokenBucket } from '../../reconcile/token-bucket.ts'

/** Records that a member is given at once; twice all that there are, where that is more. */
const BURST = 100_000
const PER_SECOND = 10_000
/** Of each beginning, beside one for each namespace that it names. */
const START = 1000
/** A member takes a broker that does not answer for longer for dead. */
const MAX_PAUSE_MS = 5000

/** What the beginning of a stream counts as. */
export function startCost(interest: AskedInterest | undefined): number {
  return START + (interest?.namespaces.size ?? 0)
}

export class SnapshotPace {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #used = new Map<ClusterId, TokenBucket>()

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock
  }

  /** Takes that a member was given so many of the records that there are; gives how long to wait before the next. */
  takes(cluster: ClusterId, count: number, records: number): number {
    const bucket = this.#used.get(cluster) ?? new TokenBucket(this.#clock)
    this.#used.set(cluster, bucket)
    const pauseMs = bucket.take(count, { burst: Math.max(BURST, 2 * records), perSecond: PER_SECOND })
    return Math.min(MAX_PAUSE_MS, pauseMs)
  }
}
