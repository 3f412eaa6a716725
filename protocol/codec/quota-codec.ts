/** What a broker says of a member's quota, between the wire and its type. Throws CodecError and nothing else. */
import type { QuotaReport } from '../../model/quota/member-quota.ts'
import * as wire from '../gen/broker.ts'
import { count } from './codec-checks.ts'

export function quotaToWire({ limit, used, isSlowed: slowed }: QuotaReport): wire.PublishReply_Quota {
  const { records, bytes, changes, streams } = limit
  return { records, bytes, changes, streams, usedRecords: used.records, usedBytes: used.bytes, slowed }
}

export function quotaFromWire(value: wire.PublishReply_Quota): QuotaReport {
  const limit = {
    records: count(value.records, 'quota.records'),
    bytes: count(value.bytes, 'quota.bytes'),
    changes: count(value.changes, 'quota.changes'),
    streams: count(value.streams, 'quota.streams'),
  }
  const used = {
    records: count(value.usedRecords, 'quota.usedRecords'),
    bytes: count(value.usedBytes, 'quota.usedBytes'),
  }
  return { limit, used, isSlowed: value.slowed }
}
