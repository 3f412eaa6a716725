/**
 * Which of the records that wait for room are offered again: those that fit, in the order in which they are wanted. So
 * which of them stay out is always the same, and nothing is sent only to be refused. Pure bookkeeping.
 */
import {
  type MemberRecord,
  type QuotaReason,
  type QuotaReport,
  type QuotaUse,
  bodyBytes,
  ceilingOf,
  quotaExcess,
} from '../../model/model.ts'
import { memberKeyText } from '../codec/codec.ts'

export interface WaitingRecord {
  readonly key: string
  readonly record: MemberRecord
  /** As it was before, the broker has it. */
  readonly isHeld: boolean
}

export class WaitingRoom {
  #report: QuotaReport | undefined
  #used: QuotaUse = { records: 0, bytes: 0 }

  /** What the broker said last; undefined: nothing. */
  get report(): QuotaReport | undefined {
    return this.#report
  }

  take(report: QuotaReport): void {
    this.#report = report
    this.#used = report.used
  }

  /**
   * There was no room for this one, which the broker does not have: more is used than was known. `isIn`: it is an
   * endpoint slice of a service that the broker has.
   */
  refused({ body }: MemberRecord, reason: QuotaReason, isIn: boolean): void {
    const limit = this.#report?.limit
    if (limit === undefined) return
    const most = isIn ? ceilingOf(limit) : limit
    const { records, bytes } = this.#used
    if (reason === 'QuotaRecords') this.#used = { records: Math.max(records, most.records), bytes }
    else this.#used = { records, bytes: Math.max(bytes, most.bytes - bodyBytes(body) + 1) }
  }

  /**
   * Takes those that wait, in their order, and whether a record is on the broker or on its way there, by key. Gives the
   * keys to offer, whose room is taken now. Before the broker has said how much there is, nothing is offered.
   */
  offer(waiting: Iterable<WaitingRecord>, isWithBroker: (key: string) => boolean): string[] {
    const limit = this.#report?.limit
    if (limit === undefined) return []
    const offered = new Set<string>()
    for (const { key, record, isHeld } of waiting) {
      const service = serviceKeyOf(record)
      const isIn = service !== undefined && (offered.has(service) || isWithBroker(service))
      // An endpoint slice without its service is of no use to anybody.
      if (service !== undefined && !isIn && !isHeld) continue
      // Of one that the broker has, the change alone counts: that is known there.
      const more = isHeld ? { records: 0, bytes: 0 } : { records: 1, bytes: bodyBytes(record.body) }
      if (quotaExcess({ limit, used: this.#used }, more, isHeld || isIn) !== undefined) continue
      this.#used = { records: this.#used.records + more.records, bytes: this.#used.bytes + more.bytes }
      offered.add(key)
    }
    return [...offered]
  }
}

/** Of an endpoint slice: the key of its ServiceExport. */
export function serviceKeyOf({ namespace, body }: MemberRecord): string | undefined {
  if (body.kind !== 'EndpointSlice') return undefined
  return memberKeyText({ kind: 'ServiceExport', namespace, name: body.service })
}
