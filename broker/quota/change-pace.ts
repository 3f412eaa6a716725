/**
 * How many changes of one member are taken a second: its whole set at once, then its rate. Who changes faster waits for
 * its acknowledgements, and is not cut off. Counted over all streams of the member, so that a new one is no way around.
 */
import { type MemberQuota, changeBurst } from '../../model/quota/member-quota.ts'
import type { Clock } from '../../reconcile/clock.ts'
import { TokenBucket } from '../../reconcile/token-bucket.ts'

/** Changes of one group take no longer than this at the member's rate: it takes a broker that answers no sooner for dead. */
const MOST_GROUP_MS = 2000
/** So much of its rate has to be left until a member counts as no longer slowed. */
const CALM_MS = 10_000

export class ChangePace {
  readonly #bucket: TokenBucket
  #isSlowed = false

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#bucket = new TokenBucket(clock)
  }

  /** It has had to wait, and goes on near its rate. */
  get isSlowed(): boolean {
    return this.#isSlowed
  }

  /** How many changes may be written together. */
  static groupSize({ changes }: MemberQuota): number {
    return Math.max(1, Math.floor((changes * MOST_GROUP_MS) / 1000))
  }

  /** Takes that so many changes were written, and gives how long to pause before the next; 0: not at all. */
  took(count: number, quota: MemberQuota): number {
    this.look(quota)
    const pauseMs = this.#bucket.take(count, { burst: changeBurst(quota), perSecond: quota.changes })
    if (pauseMs > 0) this.#isSlowed = true
    return pauseMs
  }

  /** Looks whether a member that had to wait has become calm. */
  look(quota: MemberQuota): void {
    const burst = changeBurst(quota)
    // What a smaller burst does not cover was taken under a larger one, and is not held against the member.
    const used = this.#bucket.used(quota.changes, burst + ChangePace.groupSize(quota))
    const calm = Math.min(burst / 2, (quota.changes * CALM_MS) / 1000)
    if (used <= burst - calm) this.#isSlowed = false
  }
}
