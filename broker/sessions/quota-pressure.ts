/**
 * How many changes of one member are taken a second: its whole set at once, then its rate. Who changes faster waits for
 * its acknowledgements, and is not cut off. Counted over all streams of the member, so that a new one is no way around.
 */
import { isDeepStrictEqual } from 'node:util'
import { type MemberQuota, type QuotaReport, type QuotaUse, changeBurst } from '../../model/model.ts'
import { MAX_RECORD_BYTES } from '../../protocol/protocol.ts'
import { type Clock, TokenBucket } from '../../reconcile/reconcile.ts'

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

/**
 * When a member is to hear of its quota again, so that it never asks: when its limits change, when it is slowed down or
 * no longer, and when there is more room than at the last refusal or report. Level: each report has all figures. Pure.
 */
export class QuotaNews {
  #last: QuotaReport | undefined
  /** The least room since the last report. */
  #low: QuotaUse = { records: 0, bytes: 0 }
  /** Something of the member may wait for room. */
  #isTight = false

  /** The report to send, if it would say something new. Takes how things are now. */
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

  /** Records were refused for want of room when things were so: from now on every bit of room is news. */
  refused(then: readonly Pick<QuotaReport, 'limit' | 'used'>[]): void {
    const rooms = then.map(roomOf)
    if (rooms.length === 0) return
    this.#isTight = true
    this.#low = rooms.reduce(least)
  }
}

/** May be less than nothing: of a member over its quota. */
function roomOf({ limit, used }: Pick<QuotaReport, 'limit' | 'used'>): QuotaUse {
  return { records: limit.records - used.records, bytes: limit.bytes - used.bytes }
}

/** A record that may be sent need not fit. */
function isTight({ records, bytes }: QuotaUse): boolean {
  return records < 1 || bytes < MAX_RECORD_BYTES
}

function least(one: QuotaUse, other: QuotaUse): QuotaUse {
  return { records: Math.min(one.records, other.records), bytes: Math.min(one.bytes, other.bytes) }
}
