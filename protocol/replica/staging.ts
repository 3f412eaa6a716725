/** A snapshot that is on its way: shown when it is whole. And events as they come in batches. */
import { isDeepStrictEqual } from 'node:util'
import { type RecordKey, type StoredRecord, recordKeyText } from '../../model/records.ts'
import type { RecordEvent } from '../broker-api.ts'
import { CodecError } from '../codec/codec-checks.ts'
import { decodeRecordEvent } from '../codec/records-codec.ts'

/** What has come of it. */
export interface Staging {
  readonly epoch: string
  readonly records: Map<string, StoredRecord>
  /** Named as removed while the snapshot came: gone, whichever member is the owner. */
  readonly removed: Set<string>
  revision: number
}

/** Folds one event in. */
export function stage(staging: Staging, event: RecordEvent): void {
  const key = recordKeyText(keyOf(event))
  if (event.t === 'put') {
    staging.records.set(key, event.record)
    staging.removed.delete(key)
  } else {
    staging.records.delete(key)
    staging.removed.add(key)
  }
}

/** Of the record that the event is about. */
export function keyOf(event: RecordEvent): RecordKey {
  return event.t === 'put' ? event.record.key : event.key
}

/**
 * Records of the broker's own that the new epoch lacks or has otherwise. What was removed in the new epoch is gone, and
 * not forgotten.
 */
export function displacedBy({ records, removed }: Staging, old: ReadonlyMap<string, StoredRecord>): StoredRecord[] {
  return [...old].flatMap(([key, record]) => {
    const { kind } = record.key
    if ((kind !== 'Cluster' && kind !== 'ClusterSetIP') || removed.has(key)) return []
    return isDeepStrictEqual(records.get(key)?.body, record.body) ? [] : [record]
  })
}

/** Events that cannot be decoded are passed to `onInvalid` and left out. */
export function decodeEvents(events: readonly Uint8Array[], onInvalid: (error: CodecError) => void): RecordEvent[] {
  const decoded: RecordEvent[] = []
  for (const bytes of events) {
    try {
      const event = decodeRecordEvent(bytes)
      if (event !== undefined) decoded.push(event)
    } catch (error) {
      if (!(error instanceof CodecError)) throw error
      onInvalid(error)
    }
  }
  return decoded
}
