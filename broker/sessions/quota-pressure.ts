/**
 * Rate limiter for the changes of a member: its whole set at once, then its rate. A member that changes faster waits
 * for its acknowledgements and stays connected. All streams of the member share the limiter, so a new stream does not
 * bypass it.
 */
import { isDeepStrictEqual } from 'node:util'
import { type MemberQuota, type QuotaReport, type QuotaUse, changeBurst } from '../../model/model.ts'
import { MAX_RECORD_BYTES } from '../../protocol/protocol.ts'
import { type Clock, TokenBucket } from '../../reconcile/reconcile.ts'

/**
 * Limit of the time that one group takes at the member's rate: a member takes a broker that does not answer within its
 * timeout for dead.
 */
const MOST_GROUP_MS = 2000
/** A member counts as no longer slowed when this much time of its rate is available again. */
const CALM_MS = 10_000

export class ChangeRateLimiter {
  readonly #bucket: TokenBucket
  #isSlowed = false

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#bucket = new TokenBucket(clock)
  }

  /** Whether the member has had to wait and is still near its rate. */
  get isSlowed(): boolean {
    return this.#isSlowed
  }

  /** How many changes may be written together. */
  static groupSize({ changes }: MemberQuota): number {
    return Math.max(1, Math.floor((changes * MOST_GROUP_MS) / 1000))
  }

  /**
   * Takes the number of changes written and returns the pause before the next ones in milliseconds. 0 if there is none.
   */
  took(count: number, quota: MemberQuota): number {
    this.look(quota)
    const pauseMs = this.#bucket.take(count, { burst: changeBurst(quota), perSecond: quota.changes })
    if (pauseMs > 0) this.#isSlowed = true
    return pauseMs
  }

  /** Checks whether the rate of a slowed member has dropped. */
  look(quota: MemberQuota): void {
    const burst = changeBurst(quota)
    // Changes beyond a smaller burst were taken under a larger one, and are not counted against the member.
    const used = this.#bucket.used(quota.changes, burst + ChangeRateLimiter.groupSize(quota))
    const calm = Math.min(burst / 2, (quota.changes * CALM_MS) / 1000)
    if (used <= burst - calm) this.#isSlowed = false
  }
}

/**
 * Decides when a member is sent its quota again, so that it never has to ask: when its limits change, when it begins or
 * ceases to be slowed down, and when there is more room than at the last refusal or report. Each report contains all
 * figures. Pure.
 */
export class QuotaNews {
  #last: QuotaReport | undefined
  /** The least room since the last report. */
  #low: QuotaUse = { records: 0, bytes: 0 }
  /** Records of the member may wait for room. */
  #isTight = false

  /** Takes the current state, and returns the report to send if it contains news. */
  next(now: QuotaReport): QuotaReport | undefined {
    const room = roomOf(now)
    if (isTight(room)) this.#isTight = true
    const { limit, isSlowed } = this.#last ?? {}
    const grown = room.records > this.#low.records || room.bytes > this.#low.bytes
    const isNews = !isDeepStrictEqual(limit, now.limit) || isSlowed !== now.isSlowed || (this.#isTight && grown)
    if (!isNews) {
      this.#low = least(this.#low, room)
      return undefined
    }
    this.#last = now
    this.#low = room
    this.#isTight = isTight(room)
    return now
  }

  /** Records were refused for lack of room in these states: from now on, any additional room is news. */
  refused(then: readonly Pick<QuotaReport, 'limit' | 'used'>[]): void {
    const rooms = then.map(roomOf)
    if (rooms.length === 0) return
    this.#isTight = true
    this.#low = rooms.reduce(least)
  }
}

/** Negative for a member over its quota. */
function roomOf({ limit, used }: Pick<QuotaReport, 'limit' | 'used'>): QuotaUse {
  return { records: limit.records - used.records, bytes: limit.bytes - used.bytes }
}

/** Whether a record of the maximum size might not fit. */
function isTight({ records, bytes }: QuotaUse): boolean {
  return records < 1 || bytes < MAX_RECORD_BYTES
}

function least(one: QuotaUse, other: QuotaUse): QuotaUse {
  return { records: Math.min(one.records, other.records), bytes: Math.min(one.bytes, other.bytes) }
}
