/**
 * Selects which of the records that wait for quota are sent again: those that fit, in the order of the wanted set. The
 * selection is therefore stable, and no record is sent only to be refused. It has no timers and no I/O.
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
  /** The broker has an earlier version of the record. */
  readonly isHeld: boolean
}

export class WaitingRoom {
  #report: QuotaReport | undefined
  #used: QuotaUse = { records: 0, bytes: 0 }

  /** The last report of the broker. Undefined if there is none. */
  get report(): QuotaReport | undefined {
    return this.#report
  }

  take(report: QuotaReport): void {
    this.#report = report
    this.#used = report.used
  }

  /**
   * Corrects the known usage after a refusal of a record that the broker does not have: more is used than was reported.
   * `isIn` is true for an EndpointSlice of a service that the broker has.
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
   * Returns the keys of the waiting records to send, and counts their size as used. `isWithBroker` returns whether a
   * record is at the broker or in flight. Returns nothing before the first quota report.
   */
  offer(waiting: Iterable<WaitingRecord>, isWithBroker: (key: string) => boolean): string[] {
    const limit = this.#report?.limit
    if (limit === undefined) return []
    const offered = new Set<string>()
    for (const { key, record, isHeld } of waiting) {
      const service = serviceKeyOf(record)
      const isIn = service !== undefined && (offered.has(service) || isWithBroker(service))
      // An EndpointSlice is useless without its service.
      if (service !== undefined && !isIn && !isHeld) continue
      // For a record that the broker has, only the difference in size counts, and only the broker knows it.
      const more = isHeld ? { records: 0, bytes: 0 } : { records: 1, bytes: bodyBytes(record.body) }
      if (quotaExcess({ limit, used: this.#used }, more, isHeld || isIn) !== undefined) continue
      this.#used = { records: this.#used.records + more.records, bytes: this.#used.bytes + more.bytes }
      offered.add(key)
    }
    return [...offered]
  }
}

/** Returns the key of the ServiceExport of an EndpointSlice. Undefined for other records. */
export function serviceKeyOf({ namespace, body }: MemberRecord): string | undefined {
  if (body.kind !== 'EndpointSlice') return undefined
  return memberKeyText({ kind: 'ServiceExport', namespace, name: body.service })
}
