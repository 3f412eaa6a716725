/**
 * When a member is to hear of its quota again, so that it never asks: when its limits change, when it is slowed down or
 * no longer, and when there is more room than at the last refusal or report. Level: each report has all figures. Pure.
 */
import { isDeepStrictEqual } from 'node:util'
import type { QuotaReport, QuotaUse } from '../../model/quota/member-quota.ts'
import { MAX_RECORD_BYTES } from '../../protocol/limits.ts'

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
